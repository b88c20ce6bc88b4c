"""Which hooks somebody overrides, asked once an epoch, so that a step calls those and no other."""

from __future__ import annotations

import re
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, Final, final

import torch
from lightning.pytorch import LightningModule
from lightning.pytorch.callbacks import Callback, Checkpoint, EarlyStopping
from lightning.pytorch.profilers import PassThroughProfiler
from lightning.pytorch.strategies import Strategy

from assay.loop.lightning_internals import CURRENT_HOOK, batch_hook_owner, does_nothing, move_batch

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import AbstractContextManager

    import lightning as L


@final
class HookPlan:
    """Calls hooks as Lightning does: those that are overridden, in its order, known to `self.log` by name.

    With a profiler each hook is called, and timed under the name that Lightning gives it.

    Args:
        trainer: Whose model is set up.
    """

    def __init__(self, trainer: L.Trainer) -> None:
        self._trainer: Any = trainer
        self._module = trainer.lightning_module
        self._fields = vars(self._module)
        profiler = trainer.profiler  # type: ignore[attr-defined]  # a plain attribute
        self.profiled = type(profiler) is not PassThroughProfiler
        self._callbacks: list[Callback] = []
        self._methods: dict[tuple[str, bool | None, bool | None], list[tuple[str, Callable[..., Any]]]] = {}
        self._moves: tuple[Any, Any] | None = None
        self._moves_itself = False

    def forget(self) -> None:
        """Ask anew who overrides what."""
        self._methods.clear()
        self._moves = None

    def callbacks(
        self, hook: str, *args: Any, saving: bool | None = None, monitoring: bool | None = None
    ) -> None:
        """Call a hook of the callbacks.

        Args:
            hook: Such as `on_train_batch_end`.
            args: After trainer and module.
            saving: True: of those that save checkpoints alone; False: of all others alone.
            monitoring: The same for those that wait for a metric, of which some save and some stop training.
        """
        trainer = self._trainer
        known: list[Callback] = trainer.callbacks
        if known != self._callbacks:
            self._callbacks = list(known)
            self._methods.clear()
        methods = self._methods.get((hook, saving, monitoring))
        if methods is None:
            kinds = (saving, Checkpoint), (monitoring, (Checkpoint, EarlyStopping))
            chosen = [
                one
                for one in known
                if all(wanted is None or isinstance(one, kind) is wanted for wanted, kind in kinds)
            ]
            methods = self._methods[hook, saving, monitoring] = self._overriding(chosen, hook)
        if not methods:
            return
        fields, module = self._fields, self._module
        before, fields[CURRENT_HOOK] = fields[CURRENT_HOOK], hook
        if self.profiled:
            for name, method in methods:
                with trainer.profiler.profile(name):
                    method(trainer, module, *args)
        else:
            for _, method in methods:
                method(trainer, module, *args)
        fields[CURRENT_HOOK] = before

    def _overriding(self, chosen: Sequence[Callback], hook: str) -> list[tuple[str, Callable[..., Any]]]:
        own = ((one, getattr(one, hook)) for one in chosen)
        return [
            (f"[Callback]{one.state_key}.{hook}", method)
            for one, method in own
            if callable(method)
            and (self.profiled or (_overrides(method, Callback, hook) and not does_nothing(one, hook)))
        ]

    def module(self, hook: str, *args: Any) -> Any:
        """Call a hook of the module; what Lightning's own does nothing in is called only if overridden.

        Args:
            hook: Such as `on_train_batch_end`.
            args: Of the hook.
        """
        return self._call(self._module, LightningModule, "LightningModule", hook, args)

    def strategy(self, hook: str, *args: Any) -> Any:
        """Call a hook of the strategy.

        Args:
            hook: Such as `on_train_batch_start`.
            args: Of the hook.
        """
        return self._call(self._trainer.strategy, Strategy, "Strategy", hook, args)

    def _call(self, owner: Any, kind: type, name: str, hook: str, args: tuple[Any, ...]) -> Any:
        key = (f"{name}.{hook}", None, None)
        methods = self._methods.get(key)
        if methods is None:
            method = getattr(owner, hook)
            called = callable(method) and (
                self.profiled or not _IDLE.match(hook) or _overrides(method, kind, hook)
            )
            methods = [(f"[{name}]{type(owner).__name__}.{hook}", method)] if called else []
            self._methods[key] = methods
        if not methods:
            return None
        ((label, method),) = methods
        fields = self._fields
        before, fields[CURRENT_HOOK] = fields[CURRENT_HOOK], hook
        with self.profile(label):
            output = method(*args)
        fields[CURRENT_HOOK] = before
        return output

    def profile(self, label: str) -> AbstractContextManager[Any]:
        """Time a block, where there is a profiler.

        Args:
            label: Under which it is reported.
        """
        return self._trainer.profiler.profile(label) if self.profiled else _NOTHING

    def to_device(self, batch: Any, dataloader_idx: int = 0) -> Any:
        """A batch after all hooks that move it.

        Args:
            batch: As the dataloader gave it.
            dataloader_idx: Its dataloader.
        """
        trainer = self._trainer
        if self._moves is None:
            self._moves = self._moving()
        convert, steps = self._moves
        if convert is not None:
            batch = convert(batch)
        if steps is None:
            batch = move_batch(trainer, batch, dataloader_idx)
            return self.strategy("batch_to_device", batch, None, dataloader_idx)
        for hook, method, device in steps:
            if device is None:
                self._fields[CURRENT_HOOK] = hook
                batch = method(batch, dataloader_idx)
            elif self._moves_itself or not _lies_on(device, batch):
                self._fields[CURRENT_HOOK] = hook
                batch = method(batch, device, dataloader_idx)
        self._fields[CURRENT_HOOK] = None
        return batch

    def _moving(self) -> tuple[Any, Any]:
        """The precision's conversion, or None; and the hooks to call in turn, or None for Lightning's way."""
        trainer, strategy = self._trainer, self._trainer.strategy
        convert = trainer.precision_plugin.convert_input
        converts = None if getattr(convert, "__qualname__", "") == "Precision.convert_input" else convert
        if self.profiled or type(strategy).batch_to_device is not Strategy.batch_to_device:
            return converts, None
        before, move, after = (getattr(batch_hook_owner(trainer, hook), hook) for hook in _MOVING)
        self._moves_itself = _overrides(move, LightningModule, _MOVING[1])
        steps = [
            *([(_MOVING[0], before, None)] if _overrides(before, LightningModule, _MOVING[0]) else []),
            (_MOVING[1], move, strategy.root_device),
            *([(_MOVING[2], after, None)] if _overrides(after, LightningModule, _MOVING[2]) else []),
        ]
        return converts, steps


_IDLE: Final = re.compile(r"on_(?!.*_model_)")
"""Hooks in which Lightning's own classes do nothing."""
_MOVING: Final = ("on_before_batch_transfer", "transfer_batch_to_device", "on_after_batch_transfer")
_NOTHING: Final = nullcontext()


def _overrides(method: Any, kind: type, hook: str) -> bool:
    """Whether it is another function than that of Lightning's class."""
    return getattr(method, "__func__", method) is not getattr(kind, hook, None)


def _lies_on(device: torch.device, batch: Any) -> bool:
    """Whether it is tensors that need not be moved."""
    return isinstance(batch, tuple | list) and all(
        type(one) is torch.Tensor and one.device == device for one in batch
    )
