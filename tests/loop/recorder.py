"""Writes down all that a trainer's loops do to those who watch them, and what these see."""

from __future__ import annotations

import contextlib
import inspect
import re
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

import lightning as L
import torch
from lightning.pytorch.core import hooks
from lightning.pytorch.loggers import Logger
from lightning.pytorch.plugins.precision import Precision
from lightning.pytorch.strategies import Strategy
from lightning.pytorch.trainer.connectors.logger_connector.fx_validator import _FxValidator
from torch import Tensor, nn
from torch.optim import Optimizer

SLOW = ("estimated_stepping_batches", "callback_metrics", "logged_metrics", "progress_bar_metrics")
"""What a trainer computes anew when it is asked, or sets up."""
PROPERTIES = [
    name
    for name, value in inspect.getmembers(L.Trainer, lambda value: isinstance(value, property))
    if not name.startswith("_") and name not in {*SLOW, "log_dir"}  # which is a broadcast
]
PLAIN = (bool, int, float, str, type(None))
UNIQUE = re.compile("[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|(?<= at )0x[0-9a-f]+")
"""Names of temporary files, and addresses."""
HALVES = ("even", "odd")
HOOK_CLASSES = (hooks.ModelHooks, hooks.DataHooks, hooks.CheckpointHooks, L.LightningModule)
UNTOUCHED = {"configure_sharded_model", "log", "log_dict", "print", "all_gather", "load_from_checkpoint"}
"""One is refused beside `configure_model`; the others are what a hook calls, not what calls a hook."""


def public_functions(*classes: type) -> list[str]:
    """Names of the functions that these classes define themselves."""
    return [
        name
        for cls in classes
        for name, value in vars(cls).items()
        if inspect.isfunction(value) and not name.startswith("_") and name not in UNTOUCHED
    ]


@dataclass(frozen=True)
class Entry:
    """One call of a hook."""

    label: str
    depth: int
    """In how many recorded calls it happened."""
    args: Any
    sees: Mapping[str, Any]


class Journal:
    """The calls in their order.

    Args:
        level: `hooks` writes calls down with what the counters of the trainer say, `all` with metrics, too.
        logs: Call `self.log` in each hook that may.
        act: What is done at one call: its label, which one of those calls (from 1), and the deed.
    """

    def __init__(
        self, level: str, logs: bool, act: tuple[str, int, Callable[[L.Trainer], None]] | None
    ) -> None:
        self.entries: list[Entry] = []
        self.trainer: Any = None
        self._level, self._logs, self._act = level, logs, act
        self._depth = 0
        self._counts: Counter[str] = Counter()
        self._serials: dict[int, tuple[int, Any]] = {}  # with the objects, lest a number is given twice
        self._busy = False

    def __deepcopy__(self, memo: object) -> Journal:
        return self  # an average of the weights copies the whole module

    @contextlib.contextmanager
    def call(self, who: str, hook: str, arguments: Mapping[str, Any]) -> Iterator[None]:
        """One call of a hook, from its beginning to its end."""
        if self._busy:  # asked for by this journal itself
            yield
            return
        label = f"{who}.{hook}"
        self._busy = True
        try:
            self.entries.append(Entry(label, self._depth, seen(arguments), self.view()))
        finally:
            self._busy = False
        self._counts[label] += 1
        if self._act and self._act[:2] == (label, self._counts[label]):
            self._act[2](self.trainer)
        if self._logs and who in {"module", "callback"}:
            self._log(label, hook)
        self._depth += 1
        try:
            yield
        finally:
            self._depth -= 1

    def close(self) -> None:
        """Write down no more."""
        self._busy = True

    def _log(self, label: str, hook: str) -> None:
        options = _FxValidator.functions.get(hook)
        module = self.trainer and self.trainer.lightning_module
        if not options or not module or module._current_fx_name != hook:
            return
        kind = zlib.crc32(label.encode())
        on_step = True in options["allowed_on_step"] and kind % 3 != 0
        on_epoch = True in options["allowed_on_epoch"] and (kind % 3 != 1 or not on_step)
        how: dict[str, Any] = {
            "reduce_fx": ("mean", "max")[kind % 2],
            "prog_bar": kind % 5 == 0,
            "batch_size": 2,
        }
        module.log(f"{label}/logged", float(self._counts[label]), on_step=on_step, on_epoch=on_epoch, **how)

    def view(self) -> dict[str, Any]:
        """What can be seen of the trainer and the process now."""
        trainer = self.trainer
        if trainer is None:
            return {}
        fit, epoch = trainer.fit_loop, trainer.fit_loop.epoch_loop
        view: dict[str, Any] = {name: value for name, value in vars(trainer).items() if type(value) in PLAIN}
        for name in [*PROPERTIES, *SLOW] if self._level == "all" else PROPERTIES:
            view[name] = self._asked(trainer, name)
        view["train_dataloader"] = self._serial(trainer.train_dataloader)
        for name, progress in {
            "epoch_progress": fit.epoch_progress,
            "batch_progress": epoch.batch_progress,
            "val batch_progress": epoch.val_loop.batch_progress,
            "validate batch_progress": trainer.validate_loop.batch_progress,
            "test batch_progress": trainer.test_loop.batch_progress,
        }.items():
            view[name] = [*vars(progress.total).values(), *vars(progress.current).values()]
            view[f"{name} is_last_batch"] = getattr(progress, "is_last_batch", None)
        for name in ("batch_idx", "total_batch_idx", "_batches_that_stepped", "_is_training_done"):
            view[f"epoch_loop.{name}"] = self._asked(epoch, name)
        view["grad"] = torch.is_grad_enabled(), torch.is_inference_mode_enabled()
        view["random"] = zlib.crc32(torch.get_rng_state().numpy().tobytes())
        view["lr"] = [[group["lr"] for group in one.param_groups] for one in trainer.optimizers]
        if (module := trainer.lightning_module) is not None:
            view |= state_of(module)
            view["current_fx_name"] = module._current_fx_name
        return view

    def _asked(self, owner: Any, name: str) -> Any:
        try:
            return seen(getattr(owner, name))
        except Exception as error:  # a trainer that is not running has no answer to some questions
            return f"{type(error).__name__}: {error}"

    def _serial(self, value: Any) -> int | None:
        """The how manieth object of all that were asked for."""
        if value is None:
            return None
        return self._serials.setdefault(id(value), (len(self._serials), value))[0]


def state_of(module: nn.Module) -> dict[str, Any]:
    """Sums over the weights, buffers and gradients, and which modules are in training mode."""
    parameters = list(module.parameters())
    gradients = [one.grad for one in parameters]
    return {
        "weights": _sum([*parameters, *module.buffers()]),
        "gradients": _sum([one for one in gradients if one is not None]),
        "has gradient": [one is not None for one in gradients],
        "requires_grad": [one.requires_grad for one in parameters],
        "modes": [one.training for one in module.modules()],
    }


def _sum(tensors: Sequence[Tensor]) -> int:
    return zlib.crc32(b"".join(map(_bytes, tensors)))


def _bytes(tensor: Tensor) -> bytes:
    return tensor.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().tobytes()


def seen(value: Any) -> Any:
    """Plain data that is equal for two runs if what they saw was."""
    if isinstance(value, Mapping):
        return {str(key): seen(one) for key, one in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [seen(one) for one in value]
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: seen(getattr(value, field.name)) for field in fields(value)}
    return _seen_alone(value)


def _seen_alone(value: Any) -> Any:
    if isinstance(value, Tensor):
        content = repr(value.item()) if value.numel() == 1 else f"{zlib.crc32(_bytes(value)):08x}"
        kind = f"{str(value.dtype).removeprefix('torch.')}{list(value.shape)}"
        value = f"{kind} {content}{' grad' * value.requires_grad}"
    elif isinstance(value, float):
        value = repr(value)  # nan equals nan
    elif isinstance(value, str):
        value = UNIQUE.sub("UNIQUE", value) if len(value) > 20 else value
    elif isinstance(value, BaseException):
        value = seen(f"{type(value).__name__}: {value}")
    elif not isinstance(value, PLAIN):
        named = (nn.Module, L.Callback, L.LightningDataModule, L.Trainer, Logger, Optimizer)
        value = "a callable" if callable(value) and not isinstance(value, named) else type(value).__name__
    return value


def recording(cls: type, who: str, names: Sequence[str], level: str) -> type:
    """A subclass that writes each call of these functions into `self.journal`, then does what `cls` does.

    Of level `odd` or `even` it overrides a half of them, so that some hook has nobody to hear it.
    """
    if level in HALVES:
        names = [name for name in names if zlib.crc32(f"{who}.{name}".encode()) % 2 == HALVES.index(level)]
    made = type(f"Recording{cls.__name__}", (cls,), {"journal": None})

    def written(name: str) -> Callable[..., Any]:
        signature = inspect.signature(getattr(cls, name))

        def hook(self: Any, *args: Any, **kwargs: Any) -> Any:
            if self.journal is None:
                return getattr(super(made, self), name)(*args, **kwargs)
            given = signature.bind(self, *args, **kwargs)  # whether by position or by name
            given.apply_defaults()
            with self.journal.call(who, name, dict(list(given.arguments.items())[1:])):
                return getattr(super(made, self), name)(*args, **kwargs)

        # Not functools.wraps: Lightning takes a function that wraps its own for its own.
        hook.__name__, hook.__signature__ = name, signature  # type: ignore[attr-defined]
        return hook

    for name in dict.fromkeys(names):
        if inspect.isfunction(getattr(cls, name, None)):
            setattr(made, name, written(name))
    return made


def recording_module(cls: type[L.LightningModule], level: str) -> type:
    """A module that overrides everything Lightning lets it."""
    return recording(cls, "module", public_functions(*HOOK_CLASSES), level)


def recording_data(cls: type[L.LightningDataModule], level: str) -> type:
    """A datamodule that overrides everything Lightning lets it."""
    classes = hooks.DataHooks, hooks.CheckpointHooks, L.LightningDataModule
    return recording(cls, "data", public_functions(*classes), level)


class _Callback(L.Callback):
    @property
    def state_key(self) -> str:
        return "recorder"

    def state_dict(self) -> dict[str, Any]:
        return {"kept": 1}


def recording_callback(level: str) -> Any:
    """A callback that overrides everything Lightning lets it."""
    return recording(_Callback, "callback", public_functions(L.Callback), level)()


class _Logger(Logger):
    name, version = "recorder", 0

    def log_metrics(self, metrics: Mapping[str, Any], step: int | None = None) -> None:
        """It is written down."""

    def log_hyperparams(self, params: Any, *args: Any, **kwargs: Any) -> None:
        """It is written down."""


def recording_logger(level: str) -> Any:
    """A logger that overrides everything Lightning lets it."""
    return recording(_Logger, "logger", public_functions(*Logger.__mro__[:-2]), level)()


def record_plugins(trainer: L.Trainer, journal: Journal, level: str) -> None:
    """Let strategy and precision plugin of this trainer write, too."""
    for plugin, base, who in (
        (trainer.strategy, Strategy, "strategy"),
        (trainer.precision_plugin, Precision, "precision"),
    ):
        names = [name for cls in type(plugin).__mro__[:-1] for name in public_functions(cls)]
        quiet = {
            "reduce",
            "barrier",
            "broadcast",
            "reduce_boolean_decision",
            "all_gather",
            "register_strategies",
        }
        kept = [name for name in names if hasattr(base, name) and name not in quiet]
        plugin.__class__ = recording(type(plugin), who, kept, level)
        plugin.__dict__["journal"] = journal
