"""Lines about each epoch in a run's `log.txt`, and about why it stopped."""

from __future__ import annotations

import logging
from time import perf_counter
from typing import TYPE_CHECKING, Protocol, final, runtime_checkable

from lightning.pytorch.callbacks import Callback, EarlyStopping, Timer
from lightning.pytorch.callbacks.early_stopping import EarlyStoppingReason
from typing_extensions import override

from assay.callbacks.progress_bar import ProgressBar, epoch_label, epoch_line, group_scalars

if TYPE_CHECKING:
    import lightning as L

log = logging.getLogger("assay.progress")


@runtime_checkable
class NumbersEpochs(Protocol):
    """A logger that sets the number of the first epoch."""

    first_epoch: int


@final
class RunLog(Callback):
    """Writes each epoch's line to the log and the screen, and why a run stopped.

    The line is written when the next epoch begins, since a module may log in its `on_train_epoch_end`.
    """

    def __init__(self) -> None:
        self._started = 0.0
        self._finished: tuple[str, float] | None = None
        self._stages: tuple[str, ...] = ("train",)

    @override
    def setup(self, trainer: L.Trainer, pl_module: L.LightningModule, stage: str) -> None:
        """Number epochs from 1 in training; a test has the number of trained epochs."""
        for logger in trainer.loggers:
            if isinstance(logger, NumbersEpochs):
                logger.first_epoch = int(stage == "fit")

    @override
    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self._started, self._finished, self._stages = perf_counter(), None, ("train",)

    @override
    def on_train_epoch_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self._write(trainer)
        self._started, self._stages = perf_counter(), ("train",)

    @override
    def on_validation_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self._stages = ("train", "val")

    @override
    def on_train_epoch_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        label = epoch_label(trainer, trainer.current_epoch + 1)
        self._finished = label, perf_counter() - self._started

    @override
    def on_train_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self._write(trainer, last=True)
        for callback in trainer.callbacks:  # type: ignore[attr-defined]  # a plain attribute
            if isinstance(callback, EarlyStopping) and _has_stopped(callback):
                _announce(trainer, f"stopped early: {_stop_reason(callback)}")
            elif isinstance(callback, Timer) and (callback.time_remaining() or 0.0) < 0.0:
                _announce(trainer, "stopped: trainer.max_time is over")

    @override
    def on_test_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self._finished, self._stages = ("test", perf_counter() - self._started), ("test",)
        self._write(trainer, last=True)

    @override
    def on_test_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self._started = perf_counter()

    @override
    def on_exception(
        self, trainer: L.Trainer, pl_module: L.LightningModule, exception: BaseException
    ) -> None:
        if isinstance(exception, (KeyboardInterrupt, SystemExit)):
            # After other exceptions, reading from the device may fail.
            self._write(trainer, last=True)

    def _write(self, trainer: L.Trainer, *, last: bool = False) -> None:
        finished, self._finished = self._finished, None
        if finished is None or not trainer.is_global_zero:
            return
        groups = group_scalars(trainer.callback_metrics, self._stages)
        if self._stages == ("test",):
            groups = {"": groups.get("", {}) | groups.get("test", {})}
        text = epoch_line(*finished, groups)
        log.info("%s", text.plain)
        bar = trainer.progress_bar_callback
        if isinstance(bar, ProgressBar):
            bar.write(text, always=last)


def _has_stopped(callback: EarlyStopping) -> bool:
    return callback.stopped_epoch > 0 or callback.stopping_reason != EarlyStoppingReason.NOT_STOPPED


def _stop_reason(callback: EarlyStopping) -> str:
    if callback.stopping_reason == EarlyStoppingReason.PATIENCE_EXHAUSTED:
        best = float(callback.best_score)
        return f"{callback.monitor} did not improve on {best:.4g} for {callback.wait_count} validations"
    return (callback.stopping_reason_message or callback.monitor).removesuffix(" Signaling Trainer to stop.")


def _announce(trainer: L.Trainer, text: str) -> None:
    """Write to the log and the screen, above the live line if there is one."""
    if not trainer.is_global_zero:
        return
    log.info("%s", text)
    bar = trainer.progress_bar_callback
    if bar is not None:
        bar.print(text)
    else:
        print(text)
