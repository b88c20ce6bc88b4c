"""Progress on the screen and in a run's log: a live bar, a line for each epoch, and why a run stopped."""

from __future__ import annotations

import logging
import math
from functools import cached_property
from time import perf_counter
from typing import TYPE_CHECKING, Any, final

from lightning.pytorch.callbacks import Callback, EarlyStopping, Timer
from lightning.pytorch.callbacks import ProgressBar as LightningProgressBar
from lightning.pytorch.callbacks.early_stopping import EarlyStoppingReason
from rich import progress as rich_progress
from rich.text import Text
from torch import Tensor
from typing_extensions import override

from assay import quoting
from assay.errors import check_numbers
from assay.terminal import Console

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    import lightning as L


_STAGES = ("train", "val", "test")


def format_number(value: float) -> str:
    """Format with four decimals, or four significant digits for very small and very large numbers."""
    if value == 0.0 or 1e-3 <= abs(value) < 1e4 or not math.isfinite(value):
        return f"{value:.4f}"
    return quoting.format_number(value)


def epoch_label(trainer: L.Trainer, number: int) -> str:
    """Return `epoch  3/20`, or `epoch 3` in a run without a limit."""
    if trainer.max_epochs is not None and trainer.max_epochs > 0:
        limit = trainer.max_epochs
    else:
        limit = None
    if limit is None:
        return f"epoch {number}"
    return f"epoch {number:{len(str(limit))}}/{limit}"


def group_scalars(
    metrics: Mapping[str, Any], stages: Collection[str] = _STAGES
) -> dict[str, dict[str, float]]:
    """Group scalar metrics by stage: `train/loss` and `train_loss` are the loss of the stage train."""
    groups: dict[str, dict[str, float]] = {stage: {} for stage in ("", *_STAGES)}
    for key, value in metrics.items():
        has_epoch_twin = key.endswith("_epoch") and key.removesuffix("_epoch") in metrics
        if (
            has_epoch_twin
            or key.endswith("_step")
            or key.startswith("lr-")
            or (isinstance(value, Tensor) and value.ndim)
        ):
            continue
        stage = next(
            (stage for stage in _STAGES if key.startswith((f"{stage}/", f"{stage}_"))), ""
        )
        if not stage or stage in stages:
            groups[stage][key[len(stage) + 1 :] if stage else key] = float(value)
    return {stage: values for stage, values in groups.items() if values}


def epoch_line(label: str, seconds: float, groups: Mapping[str, Mapping[str, float]]) -> Text:
    """Return the permanent line of an epoch; numbers that are not finite are highlighted."""
    text = Text(label, style="").append(f"  {seconds:6.1f}s", style="dim")
    for stage, values in groups.items():
        text.append("   ").append(f"{stage} " if stage else "", style="bold")
        for position, (name, value) in enumerate(values.items()):
            text.append("  " if position else "").append(f"{name} ", style="dim")
            text.append(format_number(value), style="" if math.isfinite(value) else "bold red")
    return text


@final
class _Speed(rich_progress.ProgressColumn):
    @override
    def render(self, task: rich_progress.Task) -> Text:
        return Text(f"{task.speed:,.1f} steps/s" if task.speed else "", style="cyan")


@final
class ProgressBar(LightningProgressBar):
    """A live bar of the stage in a terminal, with one permanent line per epoch; else plain lines.

    It is redrawn by time, not by step: a step only stores its number and a reference to its loss and
    checks the time. Only a redraw formats anything or reads from the device.
    The lines of epochs come from `RunLog`. Only rank 0 shows anything.

    Args:
        refresh_interval: Seconds between two redraws of the live bar, more if that is slow; 0: each step.
        line_interval: Seconds between two lines on the state of a long epoch, without a terminal.
        min_line_interval: Seconds between two lines of short epochs; epochs in between have none. The
            first and the last epoch always have one.
        console: Where to write; by default standard output.

    Raises:
        ValueError: If an interval is negative.
    """

    def __init__(
        self,
        refresh_interval: float = 0.25,
        line_interval: float = 30.0,
        min_line_interval: float = 1.0,
        console: Console | None = None,
    ) -> None:
        super().__init__()
        intervals = {"refresh_interval": refresh_interval, "min_line_interval": min_line_interval}
        check_numbers("[0, inf)", **intervals, line_interval=line_interval)
        self.refresh_interval = refresh_interval
        self.line_interval = line_interval
        self.min_line_interval = min_line_interval
        if console is not None:
            self._console = console
        self._enabled = True
        self._bar: rich_progress.Progress | None = None
        self._done = 0
        self._epoch = ""  # label of the current epoch, during training
        self._started = 0.0
        self._next_redraw = math.inf  # while nothing is shown
        self._loss: Any = None
        self._last_line = -math.inf

    def __getstate__(self) -> dict[str, Any]:
        """Without the terminal, as a spawned worker of a datamodule takes it."""
        state = {**vars(self), "_bar": None}
        state.pop("_console", None)
        return state

    @override
    def disable(self) -> None:
        self._close()
        self._enabled = False

    @override
    def enable(self) -> None:
        self._enabled = self._trainer is None or self._trainer.is_global_zero

    @override
    def print(self, *args: Any, **kwargs: Any) -> None:
        if self._enabled:
            self._console.print(
                " ".join(map(str, args)), soft_wrap=True, highlight=False, markup=False
            )

    def write(self, text: Text, *, always: bool) -> None:
        """Write a permanent line, unless the last one was written too recently."""
        now = perf_counter()
        if self._enabled and (always or now - self._last_line >= self.min_line_interval):
            self._last_line = now
            self._console.print(text, soft_wrap=True, highlight=False)

    # -- training ------------------------------------------------------------------------------------------

    @override
    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self._last_line = -math.inf
        # A run may be resumed within an epoch.
        self._begin_epoch(trainer, trainer.fit_loop.epoch_loop.batch_progress.current.completed)

    @override
    def on_train_epoch_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self._begin_epoch(trainer)

    @override
    def on_train_batch_end(
        self,
        trainer: L.Trainer,
        pl_module: L.LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
    ) -> None:
        self._loss = outputs
        self._done = batch_idx + 1
        if perf_counter() >= self._next_redraw:
            self._redraw()

    @override
    def on_train_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self.teardown()

    # -- validation, test, prediction ----------------------------------------------------------------------

    @override
    def on_validation_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        if trainer.state.stage:
            label = stage = trainer.state.stage.dataloader_prefix
        else:
            label = stage = ""
        if trainer.sanity_checking:
            label = "check"
            stage = "sanity_val"
        batches: Sequence[float] | float = getattr(trainer, f"num_{stage}_batches")
        if isinstance(batches, (int, float)):
            total = batches
        else:
            total = sum(batches)
        self._before = self._done, trainer.num_training_batches
        if not self._epoch:
            self._started = perf_counter()
        self._begin(f"{self._epoch}  {label}".strip(), 0, total)

    @override
    def on_validation_batch_end(self, *args: Any, **kwargs: Any) -> None:
        self._done += 1
        if perf_counter() >= self._next_redraw:
            self._redraw()

    @override
    def on_validation_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        if self._epoch:
            self._begin(self._epoch, *self._before)
        else:
            self._close()

    on_test_start = on_validation_start
    on_test_batch_end = on_validation_batch_end
    on_test_end = on_validation_end

    # -- end of the run -----------------------------------------------------------------------------------

    @override
    def on_exception(self, *args: Any, **kwargs: Any) -> None:
        self._close()

    @override
    def teardown(self, *args: Any, **kwargs: Any) -> None:
        self._close()
        self._epoch = ""
        self._loss = None

    # -- drawing -------------------------------------------------------------------------------------------

    @cached_property
    def _console(self) -> Console:
        return Console()

    def _begin_epoch(self, trainer: L.Trainer, done: int = 0) -> None:
        self._epoch = epoch_label(trainer, trainer.current_epoch + 1)
        self._started = perf_counter()
        self._begin(self._epoch, done, trainer.num_training_batches)

    def _begin(self, label: str, done: int, total: float) -> None:
        self._done = done
        if not self._enabled:
            return
        if self._bar is None:
            console = self._console
            self._bar = rich_progress.Progress(
                rich_progress.TextColumn("[bold]{task.description}"),
                rich_progress.BarColumn(),
                rich_progress.MofNCompleteColumn(),
                _Speed(),
                rich_progress.TimeRemainingColumn(),
                rich_progress.TextColumn("{task.fields[loss]}"),
                console=console,
                auto_refresh=False,
                transient=True,
                disable=not console.is_terminal or console.is_dumb_terminal or console.is_jupyter,
            )
            self._bar.add_task("", loss="")
            self._next_redraw = perf_counter() + self._interval
        stage = self._bar.tasks[0]
        if total < math.inf:
            stage.total = total
        else:
            stage.total = None
        self._bar.reset(stage.id, description=label, completed=done, loss="")
        self._bar.start()

    @property
    def _interval(self) -> float:
        if self._bar is None or self._bar.disable:
            return self.line_interval
        return self.refresh_interval

    def _redraw(self) -> None:
        assert self._bar is not None  # noqa: S101 - else there is no time of a redraw
        began = perf_counter()
        stage = self._bar.tasks[0]
        if isinstance(self._loss, dict):
            loss = self._loss.get("loss")
        else:
            loss = self._loss
        shown = ""
        if loss is not None and stage.description == self._epoch:
            # Lightning divides the loss of outputs by the number of accumulated batches.
            shown = f"loss {format_number(float(loss) * self.trainer.accumulate_grad_batches)}"
        self._bar.update(stage.id, completed=self._done, loss=shown)
        self._bar.refresh()
        if self._bar.disable:
            count = ""
            if stage.total is not None:
                count = f"/{stage.total:.0f}"
            seconds = perf_counter() - self._started
            self.print(
                f"{stage.description}  {self._done}{count}  {seconds:.1f}s  {shown}".rstrip()
            )
        ended = perf_counter()
        # All redraws together take at most 5 % of the time.
        self._next_redraw = ended + (
            max(self._interval, 20 * (ended - began)) if self._interval > 0 else 0.0
        )

    def _close(self) -> None:
        self._next_redraw = math.inf
        if self._bar is not None:
            self._bar.stop()
            self._bar = None


log = logging.getLogger("assay.progress")


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
            if isinstance(getattr(logger, "first_epoch", None), int):
                logger.first_epoch = int(stage == "fit")  # type: ignore[attr-defined]  # as `RunCSV` has it

    @override
    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self._started = perf_counter()
        self._finished = None
        self._stages = ("train",)

    @override
    def on_train_epoch_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self._write(trainer)
        self._started = perf_counter()
        self._stages = ("train",)

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
            if isinstance(callback, EarlyStopping) and (
                callback.stopped_epoch > 0
                or callback.stopping_reason != EarlyStoppingReason.NOT_STOPPED
            ):
                _announce(
                    trainer,
                    f"stopped early: {callback.stopping_reason_message or callback.monitor}",
                )
            elif isinstance(callback, Timer) and (callback.time_remaining() or 0.0) < 0.0:
                _announce(trainer, "stopped: trainer.max_time is over")

    @override
    def on_test_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self._finished = ("test", perf_counter() - self._started)
        self._stages = ("test",)
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
        finished = self._finished
        self._finished = None
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
