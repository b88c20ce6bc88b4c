"""Trains one configuration by Lightning's own loops and by others, and tells in what they differ."""

from __future__ import annotations

import functools
import logging
import re
import shutil
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import lightning as L
import pytest
import torch
from lightning.pytorch.callbacks import Checkpoint
from lightning.pytorch.loops.evaluation_loop import _EvaluationLoop
from lightning.pytorch.loops.fit_loop import _FitLoop
from lightning.pytorch.loops.optimization.automatic import ClosureResult, _AutomaticOptimization
from lightning.pytorch.loops.prediction_loop import _PredictionLoop
from lightning.pytorch.loops.training_epoch_loop import _TrainingEpochLoop
from lightning.pytorch.trainer import call
from lightning.pytorch.trainer.states import RunningStage, TrainerFn
from lightning_utilities.core.rank_zero import WarningCache
from tests.loop import recorder
from tests.loop.learner import Data, Learner, NoIndex
from tests.loop.steady_clock import CLOCK
from torch import nn

from assay.logger.run_csv import RunCSV

if TYPE_CHECKING:
    from pathlib import Path

Install = Callable[[L.Trainer], None]

CALLS = ("_call_callback_hooks", "_call_lightning_module_hook", "_call_strategy_hook")
ALLOWED: dict[str, str] = {
    r"sees \.current_fx_name: call \d+ \((data|module)\.\w+_batch_(transfer|to_device)\)": (
        "hooks that move a batch are called by their own names; self.log refuses there, either way"
    ),
    r".*\.loops\.fit_loop\.state_dict\.(position|epoch_lost|log|scores|carried)\b": (
        "what a checkpoint holds so that a run can go on from it, and its scores of validation"
    ),
    r"(sees |end: \.view)\.ckpt_path: ": (
        "what a run has gone on from is one of its own checkpoints, to be removed in its turn"
    ),
    r"end: \.metrics\.csv: \"\['epoch,step'\]\", not '\[\]'": (
        "a checkpoint says where the rows end, and so the file begins when it is saved"
    ),
    r"end: \.warnings\.`?training_step`? returned `?None": "the same, in other words",
}
"""In what ours differ on purpose: how lines of `differences` begin, each with its reason."""


@contextmanager
def on_purpose() -> Iterator[None]:
    """Let Lightning's loops do what ours do otherwise on purpose.

    Callbacks that save checkpoints hear of the end of a batch and of a validation after module and strategy.
    What a tuner tries begins anew; Lightning takes it for resumed, and counts a step before the first.
    A step of fewer batches, at the end of an epoch, is their mean; Lightning divides it by as many as usual.
    """
    step = _AutomaticOptimization._training_step

    def training_step(optimization: Any, kwargs: Any) -> Any:
        trainer = optimization.trainer
        loop, accumulated = trainer.fit_loop.epoch_loop, trainer.accumulate_grad_batches
        done = loop.batch_idx % accumulated
        count = min(accumulated, trainer.num_training_batches - loop.batch_idx + done)
        if loop.batch_progress.is_last_batch and done + 1 < count:
            count = done + 1
            for parameter in trainer.lightning_module.parameters():
                if parameter.grad is not None and done:
                    parameter.grad.mul_(accumulated / count)
        make = ClosureResult.from_training_step_output
        optimization.output_result_cls = SimpleNamespace(
            from_training_step_output=lambda output, _: make(output, int(count))
        )
        return step(optimization, kwargs)

    reset = _TrainingEpochLoop.reset

    def reset_at_start(loop: Any) -> None:
        if not loop.batch_progress.total.ready:
            loop.restarting = False
        reset(loop)

    own = {name: getattr(call, name) for name in CALLS}
    last = {"on_train_batch_end": CALLS[1], "on_validation_end": CALLS[2]}
    waiting: dict[str, Any] = {}

    def tell(trainer: Any, hook: str, args: Any, *, saving: bool) -> None:
        module = trainer.lightning_module
        before, module._current_fx_name = module._current_fx_name, hook
        for one in trainer.callbacks:
            method = getattr(one, hook)
            if isinstance(one, Checkpoint) is saving and callable(method):
                with trainer.profiler.profile(f"[Callback]{one.state_key}.{hook}"):
                    method(trainer, module, *args)
        module._current_fx_name = before

    def call_callbacks(trainer: Any, hook: str, *args: Any, **kwargs: Any) -> None:
        if hook in last and trainer.state.fn == TrainerFn.FITTING:
            waiting[hook] = args
            tell(trainer, hook, args, saving=False)
        else:
            own[CALLS[0]](trainer, hook, *args, **kwargs)

    def then(name: str) -> Any:
        def call_own(trainer: Any, hook: str, *args: Any, **kwargs: Any) -> Any:
            output = own[name](trainer, hook, *args, **kwargs)
            if last.get(hook) == name and hook in waiting:
                tell(trainer, hook, waiting.pop(hook), saving=True)
            return output

        return call_own

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_TrainingEpochLoop, "reset", reset_at_start)
        patch.setattr(_AutomaticOptimization, "_training_step", training_step)
        patch.setattr(call, CALLS[0], call_callbacks)
        for name in CALLS[1:]:
            patch.setattr(call, name, then(name))
        yield


def install_stock(trainer: L.Trainer) -> None:
    """Lightning's own loops, as its trainer makes them."""
    fit, epoch = trainer.fit_loop, trainer.fit_loop.epoch_loop
    trainer.fit_loop = _FitLoop(trainer, min_epochs=fit.min_epochs, max_epochs=fit.max_epochs)
    trainer.fit_loop.epoch_loop = _TrainingEpochLoop(
        trainer, min_steps=epoch.min_steps, max_steps=epoch.max_steps
    )
    inference: Any = {"inference_mode": trainer.validate_loop.inference_mode}
    trainer.validate_loop = _EvaluationLoop(
        trainer, TrainerFn.VALIDATING, RunningStage.VALIDATING, **inference
    )
    trainer.test_loop = _EvaluationLoop(trainer, TrainerFn.TESTING, RunningStage.TESTING, **inference)
    trainer.predict_loop = _PredictionLoop(trainer, **inference)


@functools.cache
def _once_only() -> list[WarningCache]:
    """What remembers which warnings were given already."""
    modules = [one for name, one in sys.modules.items() if name.startswith(("lightning.", "assay.loop"))]
    values = [value for one in modules for value in vars(one).values()]
    values += [value for one in values if isinstance(one, type) for value in vars(one).values()]
    return [value for value in values if isinstance(value, WarningCache)]


MODULES: dict[str, type[Learner]] = {"usual": Learner, "no index": NoIndex}


@dataclass
class Case:
    """What is trained, and how closely it is watched.

    Attributes:
        trainer: Arguments of the trainer.
        module: Arguments of `Learner`; `kind` is one of `MODULES`.
        data: `kind` of `Data`.
        callbacks: Makes them, given a folder to write to.
        observer: `none`, `hooks` or `all`, see `Journal`; `odd` or `even`, see `recorder.recording`.
        calls: What is asked of the trainer.
        logs: Call `self.log` in each hook that may.
        act: As of `Journal`.
        prepare: Done to trainer and module once they are built.
    """

    trainer: dict[str, Any] = field(default_factory=dict)
    module: dict[str, Any] = field(default_factory=dict)
    data: str = "one"
    callbacks: list[Callable[[Path], L.Callback]] = field(default_factory=list)
    observer: str = "hooks"
    calls: tuple[str, ...] = ("fit",)
    logs: bool = False
    act: tuple[str, int, Callable[[L.Trainer], None]] | None = None
    prepare: Callable[[L.Trainer, L.LightningModule], None] | None = None


@dataclass(frozen=True)
class Outcome:
    """What a run did, and what was there at its end."""

    entries: list[recorder.Entry]
    end: dict[str, Any]


class _Lines(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        line = f"{record.levelname} {record.getMessage()}"
        if "Profiler Report" not in line:  # a table of times; what was profiled is compared by itself
            self.lines.append(line)


def run(case: Case, install: Install, folder: Path, *, clear: bool = True) -> Outcome:
    """Do what the case says with these loops.

    Args:
        case: What is done.
        install: Puts the loops into a trainer.
        folder: Where it is done; the same for runs that are compared, since paths are told to hooks.
        clear: Remove what is there.
    """
    if clear:
        shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True, exist_ok=True)
    lines = _Lines()
    logger = logging.getLogger("lightning.pytorch")
    before = logger.level
    logger.addHandler(lines)
    logger.setLevel(logging.INFO)
    CLOCK.now = 1000.0
    for cache in _once_only():
        cache.clear()
    try:
        with on_purpose(), CLOCK.told(), warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            entries, end = _run(case, install, folder)
    finally:
        logger.removeHandler(lines)
        logger.setLevel(before)
    told = [
        recorder.seen(str(one.message).partition("\n")[0])
        for one in warned
        if issubclass(one.category, UserWarning)
    ]
    end["warnings"] = dict(Counter(told))
    end["log"] = recorder.seen(lines.lines)
    return Outcome(entries, end)


def _run(case: Case, install: Install, folder: Path) -> tuple[list[recorder.Entry], dict[str, Any]]:
    journal = recorder.Journal(case.observer, case.logs, case.act)
    watched = case.observer != "none"
    options = {"accelerator": "cpu", "devices": 1, "max_epochs": 3, "log_every_n_steps": 2}
    options |= {"enable_progress_bar": False, "enable_model_summary": False, "enable_checkpointing": False}
    callbacks = [made(folder) for made in case.callbacks]
    settings = dict(case.module)
    made = MODULES[settings.pop("kind", "usual")]
    L.seed_everything(7, verbose=False)
    loggers: list[Any] = [RunCSV(folder / "metrics.csv")]
    options |= {"default_root_dir": str(folder), "logger": loggers, "callbacks": callbacks}
    if watched:
        recording = [recorder.recording_callback(case.observer), recorder.recording_logger(case.observer)]
        callbacks.insert(len(callbacks) // 2, recording[0])
        loggers.append(recording[1])
        module: Any = recorder.recording_module(made, case.observer)(**settings)
        data: Any = recorder.recording_data(Data, case.observer)(case.data)
        for one in (*recording, module, data):
            one.journal = journal
    else:
        module, data = made(**settings), Data(case.data)
    error, results, trainer = None, [], None
    try:
        given = {key: one() if callable(one) else one for key, one in case.trainer.items()}
        trainer = L.Trainer(**{**options, **given})
        install(trainer)
        journal.trainer = trainer
        if watched:
            recorder.record_plugins(trainer, journal, case.observer)
        if case.prepare:
            case.prepare(trainer, module)
        for one in case.calls:
            name = one
            if one == "more":
                trainer.fit_loop.max_epochs = (trainer.max_epochs or 0) + 2
                name = "fit"
            kwargs: dict[str, Any] = {"verbose": False} if name in {"validate", "test"} else {}
            results.append(getattr(trainer, name)(module, datamodule=data, **kwargs))
    except (Exception, KeyboardInterrupt, SystemExit) as caught:
        error = caught
    end = {"error": recorder.seen(error), "results": recorder.seen(results)}
    if trainer is not None:
        end |= end_of(trainer, module, journal, folder)
    return journal.entries, end


def end_of(trainer: L.Trainer, module: nn.Module, journal: recorder.Journal, folder: Path) -> dict[str, Any]:
    """What there is when all is done."""
    journal.close()
    if torch.distributed.is_initialized():
        torch.distributed.barrier()  # the first rank writes what all read
    table = folder / "metrics.csv"
    durations = getattr(vars(trainer)["profiler"], "recorded_durations", {})
    checkpoints = sorted(folder.rglob("*.ckpt"))
    plateau = [config.scheduler.state_dict() for config in trainer.lr_scheduler_configs]
    return {
        "view": journal.view(),
        "state": [str(one) for one in (trainer.state.fn, trainer.state.stage, trainer.state.status)],
        "weights": recorder.seen(module.state_dict()),
        "optimizers": [recorder.seen(one.state_dict()) for one in trainer.optimizers],
        "schedulers": recorder.seen(plateau),
        "scaler": recorder.seen(trainer.precision_plugin.state_dict()),
        "callbacks": {
            type(one).__name__: recorder.seen(one.state_dict()) for one in vars(trainer)["callbacks"]
        },
        "metrics.csv": table.read_text(encoding="utf-8").splitlines() if table.exists() else [],
        "checkpoints": {
            str(path.relative_to(folder)): recorder.seen(torch.load(path, weights_only=False))
            for path in checkpoints
        },
        "profiled": {name: len(times) for name, times in durations.items()},
    }


def differences(stock: Outcome, ours: Outcome, allowed: Iterable[str] = ()) -> list[str]:
    """In what two runs differ, a line for each kind; the first one of each kind is shown.

    Args:
        stock: The run that is right.
        ours: The other.
        allowed: Patterns of the differences that are left out.
    """
    left_out = re.compile("|".join(allowed) or "(?!)")
    found: dict[str, list[str]] = {}
    for path, how in _all_differences(stock, ours):
        if not left_out.match(f"{path}: {how}"):
            found.setdefault(path, []).append(how)
    more = {path: f" (and {len(lines) - 1} more)" if len(lines) > 1 else "" for path, lines in found.items()}
    return [f"{path}: {lines[0]}{more[path]}" for path, lines in found.items()]


def _all_differences(stock: Outcome, ours: Outcome) -> Iterator[tuple[str, str]]:
    for index, (one, other) in enumerate(zip(stock.entries, ours.entries, strict=False)):
        if (one.label, one.depth) != (other.label, other.depth):
            before = [entry.label for entry in stock.entries[max(0, index - 3) : index]]
            after = [entry.label for entry in stock.entries[index : index + 3]]
            instead = [entry.label for entry in ours.entries[index : index + 3]]
            yield "order", f"call {index}: after {before} come {instead}, not {after}"
            break
        for path, how in _unlike(one.args, other.args, f"{one.label} is given "):
            yield path, f"call {index}: {how}"
        for path, how in _unlike(one.sees, other.sees, "sees "):
            yield path, f"call {index} ({one.label}): {how}"
    else:
        if len(stock.entries) != len(ours.entries):
            yield "number of calls", f"{len(ours.entries)}, not {len(stock.entries)}"
    yield from _unlike(stock.end, ours.end, "end: ")


def _unlike(left: Any, right: Any, path: str) -> Iterator[tuple[str, str]]:
    if left == right:
        return
    if isinstance(left, dict) and isinstance(right, dict):
        for key in [*left, *(key for key in right if key not in left)]:
            yield from _unlike(left.get(key, "nothing"), right.get(key, "nothing"), f"{path}.{key}")
    elif isinstance(left, list) and isinstance(right, list) and len(left) == len(right):
        for index, (one, other) in enumerate(zip(left, right, strict=True)):
            yield from _unlike(one, other, f"{path}[{index}]")
    else:
        yield path, f"{str(right)[:300]!r}, not {str(left)[:300]!r}"
