"""Which hooks somebody overrides, asked once an epoch, so that a step calls those and no other."""

from __future__ import annotations

import re
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, final

import torch
from lightning.pytorch import LightningModule
from lightning.pytorch.callbacks import Callback, Checkpoint, EarlyStopping
from lightning.pytorch.profilers import PassThroughProfiler
from lightning.pytorch.strategies import Strategy

from assay.loop.lightning_internals import CURRENT_HOOK, batch_hook_owner, lean_hook, move_batch

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    import lightning as L

    Call = Callable[..., Any]


@final
class HookPlan:
    """Calls hooks as Lightning does: those that are overridden, in its order, known to `self.log` by name."""

    def __init__(self, trainer: L.Trainer) -> None:
        self._trainer: Any = trainer
        self._module = trainer.lightning_module
        self._fields = vars(self._module)
        profiler = trainer.profiler  # type: ignore[attr-defined]  # a plain attribute
        self.profiled = type(profiler) is not PassThroughProfiler
        self._callbacks: list[Callback] = []
        self._version = 0
        self._calls: dict[Any, Call] = {}
        self._moves: tuple[Any, Any] | None = None
        self._moves_itself = False

    def forget(self) -> None:
        """Ask anew who overrides what."""
        self._calls.clear()
        self._callbacks = list(self._trainer.callbacks)
        self._moves = None
        self._version += 1

    @property
    def version(self) -> int:
        """Another number once the calls given do not hold any more, as callbacks have come or gone."""
        if self._trainer.callbacks != self._callbacks:
            self.forget()
        return self._version

    def callbacks(
        self, hook: str, *, saving: bool | None = None, monitoring: bool | None = None
    ) -> Call:
        """What calls a hook of the callbacks, given what comes after trainer and module."""
        if self._trainer.callbacks != self._callbacks:
            self.forget()
        key = hook, saving, monitoring
        if key not in self._calls:
            kinds = (saving, Checkpoint), (monitoring, (Checkpoint, EarlyStopping))
            methods = []
            for callback in self._callbacks:
                chosen = all(
                    is_instance is None or isinstance(callback, kind) is is_instance
                    for is_instance, kind in kinds
                )
                if chosen:
                    method = getattr(callback, hook)
                else:
                    method = None
                if callable(method) and not self.profiled:
                    if _overrides(method, Callback, hook):
                        method = lean_hook(callback, hook, method)
                    else:
                        method = None
                if callable(method):
                    methods.append(self._timed(f"[Callback]{callback.state_key}.{hook}", method))
            self._calls[key] = self._calling(hook, methods)
        return self._calls[key]

    def module(self, hook: str) -> Call:
        """What calls a hook of the module; one in which Lightning does nothing, only if it is overridden."""
        return self._of_one(self._module, LightningModule, "LightningModule", hook)

    def strategy(self, hook: str) -> Call:
        """What calls a hook of the strategy."""
        return self._of_one(self._trainer.strategy, Strategy, "Strategy", hook)

    def _calling(self, hook: str, methods: list[Call]) -> Call:
        trainer = self._trainer
        module = self._module
        fields = self._fields

        def call(*args: Any) -> None:
            before = fields[CURRENT_HOOK]
            fields[CURRENT_HOOK] = hook
            for method in methods:
                method(trainer, module, *args)
            fields[CURRENT_HOOK] = before

        if methods:
            return call
        return _nothing

    def _of_one(self, owner: Any, kind: type, name: str, hook: str) -> Call:
        key = f"{name}.{hook}"
        if key in self._calls:
            return self._calls[key]
        method = getattr(owner, hook)
        fields = self._fields

        def call(*args: Any) -> Any:
            before = fields[CURRENT_HOOK]
            fields[CURRENT_HOOK] = hook
            output = method(*args)
            fields[CURRENT_HOOK] = before
            return output

        idle = not self.profiled and _IDLE.match(hook) and not _overrides(method, kind, hook)
        timed = self._timed(f"[{name}]{type(owner).__name__}.{hook}", call)
        if idle or not callable(method):
            self._calls[key] = _nothing
        else:
            self._calls[key] = timed
        return self._calls[key]

    def _timed(self, label: str, method: Call) -> Call:
        def profiled(*args: Any) -> Any:
            with self.profile(label):
                return method(*args)

        if self.profiled:
            return profiled
        return method

    def profile(self, label: str) -> AbstractContextManager[Any]:
        """Time a block, where there is a profiler."""
        return self._trainer.profiler.profile(label) if self.profiled else _NOTHING

    def to_device(self, batch: Any, dataloader_idx: int = 0) -> Any:
        """A batch after all hooks that move it."""
        trainer = self._trainer
        if self._moves is None:
            self._moves = self._moving()
        convert, steps = self._moves
        if convert is not None:
            batch = convert(batch)
        if steps is None:
            batch = move_batch(trainer, batch, dataloader_idx)
            return self.strategy("batch_to_device")(batch, None, dataloader_idx)
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
        trainer = self._trainer
        strategy = self._trainer.strategy
        convert = trainer.precision_plugin.convert_input
        converts = None
        # A datamodule that normalises first: 16 bits hold too few digits of what is not normalised.
        converts_itself = getattr(getattr(trainer, "datamodule", None), "converts_batches", False)
        is_default = getattr(convert, "__qualname__", "") == "Precision.convert_input"
        if not (converts_itself or is_default):
            converts = convert
        if self.profiled or type(strategy).batch_to_device is not Strategy.batch_to_device:
            return converts, None
        before, move, after = (getattr(batch_hook_owner(trainer, hook), hook) for hook in _MOVING)
        self._moves_itself = _overrides(move, LightningModule, _MOVING[1])
        steps = [(_MOVING[1], move, strategy.root_device)]
        if _overrides(before, LightningModule, _MOVING[0]):
            steps.insert(0, (_MOVING[0], before, None))
        if _overrides(after, LightningModule, _MOVING[2]):
            steps.append((_MOVING[2], after, None))
        return converts, steps


_CALLS = frozenset(
    (
        *(
            "hooks",
            "micro_batch",
            "_hooks",
            "_step",
            "_begin",
            "_end",
            "_save",
            "_single",
            "_rest",
        ),
        *("_combined_loader", "_data_fetcher"),
    )
)


def picklable_state(loop: Any) -> dict[str, Any]:
    """A loop without what belongs to the fit under way, as a spawned worker of a datamodule takes it."""
    return {name: None if name in _CALLS else value for name, value in vars(loop).items()}


def _nothing(*args: Any) -> None:
    """Stands for a hook that nobody overrides."""


def active_calls(*calls: Call) -> tuple[Call, ...]:
    """Those that are to be called at all."""
    return tuple(call for call in calls if call is not _nothing)


_IDLE = re.compile(r"on_(?!.*_model_)")
"""Hooks in which Lightning's own classes do nothing."""
_MOVING = ("on_before_batch_transfer", "transfer_batch_to_device", "on_after_batch_transfer")
_NOTHING = nullcontext()


def _overrides(method: Any, kind: type, hook: str) -> bool:
    """Whether it is another function than that of Lightning's class."""
    return getattr(method, "__func__", method) is not getattr(kind, hook, None)


def _lies_on(device: torch.device, batch: Any) -> bool:
    """Whether it is tensors that need not be moved."""
    if not isinstance(batch, (tuple, list)):
        return False
    for tensor in batch:  # noqa: SIM110 - a generator takes as long as all the rest
        if type(tensor) is not torch.Tensor or tensor.device != device:
            return False
    return True
