"""Progress on the screen and in a run's log: live bars, a line for each epoch, and why a run stopped."""

from __future__ import annotations

import logging
import math
from functools import cached_property
from time import perf_counter
from typing import TYPE_CHECKING, Any, Protocol, final, runtime_checkable

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
    limit = trainer.max_epochs if trainer.max_epochs is not None and trainer.max_epochs > 0 else None
    return f"epoch {number}" if limit is None else f"epoch {number:{len(str(limit))}}/{limit}"


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
        stage = next((stage for stage in _STAGES if key.startswith((f"{stage}/", f"{stage}_"))), "")
        if not stage or stage in stages:
            groups[stage][key[len(stage) + 1 :] if stage else key] = float(value)
    return {stage: values for stage, values in groups.items() if values}


def fit_epoch_line(
    label: str, seconds: float, groups: Mapping[str, Mapping[str, float]], width: int, monitor: str
) -> Text:
    """Return the line of an epoch without the last metrics that a terminal has no room for.

    The monitored one stays, and losses go last.
    """
    text = epoch_line(label, seconds, groups)
    names = [(stage, name) for stage, values in groups.items() for name in values]
    names = [pair for pair in names if "/".join(filter(None, pair)) != monitor]
    order = sorted(names, key=lambda pair: (pair[1] != "loss", names.index(pair)))
    left_out: set[tuple[str, str]] = set()
    while text.cell_len > width and order:
        left_out.add(order.pop())
        kept = {
            stage: {name: value for name, value in values.items() if (stage, name) not in left_out}
            for stage, values in groups.items()
        }
        text = epoch_line(label, seconds, {stage: values for stage, values in kept.items() if values})
        text.append(" …")
    return text


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
    """Live bars of the run and its stage in a terminal, with one permanent line per epoch; else plain lines.

    They are redrawn by time, not by step: a step only stores its number and a reference to its loss and
    checks the time. Only a redraw formats anything or reads from the device.
    The lines of epochs come from `RunLog`. Only rank 0 shows anything.

    Args:
        refresh_interval: Seconds between two redraws of the live bars, more if they are slow; 0: each step.
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
        self._bars: rich_progress.Progress | None = None
        self._label = ""
        self._done = 0
        self._total = math.inf
        self._epoch = ""  # label of the current epoch, during training
        self._started = 0.0
        self._fit_began = 0.0, 0
        """When training began in this process, and after how many batches: validation counts, too."""
        self._next_redraw = math.inf  # while nothing is shown
        self._loss: Any = None
        self._last_line = -math.inf
        self._skipped: Text | None = None  # the line of the last epoch, if it came too soon

    def __getstate__(self) -> dict[str, Any]:
        """Without the terminal, as a spawned worker of a datamodule takes it."""
        state = {**vars(self), "_bars": None}
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
            self._console.print(" ".join(map(str, args)), soft_wrap=True, highlight=False, markup=False)

    @property
    def width(self) -> int | None:
        """Of the terminal; None elsewhere."""
        return self._console.width if self._console.is_terminal else None

    def write(self, text: Text, *, always: bool) -> None:
        """Write a permanent line, unless the last one was written too recently."""
        now = perf_counter()
        is_soon = not always and now - self._last_line < self.min_line_interval
        self._skipped = text if is_soon else None
        if not self._enabled or is_soon:
            return
        self._last_line = now
        if self._console.is_terminal:
            self._console.print(text, no_wrap=True, overflow="ellipsis", highlight=False)
        else:
            self._console.print(text, soft_wrap=True, highlight=False)

    # -- training ------------------------------------------------------------------------------------------

    @override
    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self._last_line = -math.inf
        self._skipped = None
        self._fit_began = perf_counter(), self._run_progress()[0]
        # A run may be resumed within an epoch.
        self._begin_epoch(trainer, trainer.fit_loop.epoch_loop.batch_progress.current.completed)

    @override
    def on_train_epoch_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self._begin_epoch(trainer)

    @override
    def on_train_batch_end(
        self, trainer: L.Trainer, pl_module: L.LightningModule, outputs: Any, batch: Any, batch_idx: int
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
        label = stage = trainer.state.stage.dataloader_prefix if trainer.state.stage else ""
        if trainer.sanity_checking:
            label = "check"
            stage = "sanity_val"
        batches: Sequence[float] | float = getattr(trainer, f"num_{stage}_batches")
        total = batches if isinstance(batches, (int, float)) else sum(batches)
        self._before = self._done, self._total
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
        if self._skipped is not None:
            self.write(self._skipped, always=True)

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
        self._label = label
        self._done = done
        self._total = total
        if not self._enabled:
            return
        if self._next_redraw == math.inf:
            console = self._console
            if console.is_terminal and not console.is_dumb_terminal and not console.is_jupyter:
                self._bars = rich_progress.Progress(
                    rich_progress.TextColumn("[bold]{task.description}"),
                    rich_progress.BarColumn(),
                    rich_progress.MofNCompleteColumn(),
                    _Speed(),
                    rich_progress.TimeRemainingColumn(),
                    rich_progress.TextColumn("{task.fields[loss]}"),
                    console=console,
                    auto_refresh=False,
                    transient=True,
                )
                self._bars.add_task("run", total=None, loss="", visible=False)
                self._bars.add_task("", total=None, loss="")
            self._next_redraw = perf_counter() + self._interval
        if self._bars is not None:
            stage = self._bars.tasks[1]
            stage.total = total if total < math.inf else None
            self._bars.reset(stage.id, description=label, completed=done, loss="")
            self._bars.start()

    @property
    def _interval(self) -> float:
        return self.line_interval if self._bars is None else self.refresh_interval

    def _redraw(self) -> None:
        began = perf_counter()
        loss = self._loss.get("loss") if isinstance(self._loss, dict) else self._loss
        shown = ""
        if loss is not None and self._label == self._epoch:
            # Lightning divides the loss of outputs by the number of accumulated batches.
            value = float(loss) * self.trainer.accumulate_grad_batches
            shown = f"loss {format_number(value)}"
        if self._bars is not None:
            run, stage = self._bars.task_ids
            done, total = self._run_progress()
            self._bars.update(run, completed=done, total=total, visible=bool(self._epoch and total))
            self._bars.update(stage, completed=self._done, loss=shown)
            self._bars.refresh()
        else:
            seconds = perf_counter() - self._started
            total_text = f"/{self._total:.0f}" if self._total < math.inf else ""
            trained, all_batches = self._run_progress()
            if all_batches and self._label == self._epoch and trained > self._fit_began[1]:
                pace = (perf_counter() - self._fit_began[0]) / (trained - self._fit_began[1])
                shown += f"  about {quoting.format_duration(pace * (all_batches - trained))} left"
            self.print(f"{self._label}  {self._done}{total_text}  {seconds:.1f}s  {shown}".rstrip())
        ended = perf_counter()
        # All redraws together take at most 5 % of the time.
        self._next_redraw = ended + (max(self._interval, 20 * (ended - began)) if self._interval > 0 else 0.0)

    def _run_progress(self) -> tuple[int, float | None]:
        """Return the number of trained batches, and that of the whole run; None if it has no limit."""
        trainer = self.trainer
        by_steps = trainer.max_steps * trainer.accumulate_grad_batches if trainer.max_steps >= 0 else math.inf
        limited = trainer.max_epochs is not None and trainer.max_epochs >= 0
        by_epochs = trainer.max_epochs * trainer.num_training_batches if limited else math.inf  # type: ignore[operator]  # it is not None
        total = min(by_steps, by_epochs)
        done = trainer.fit_loop.epoch_loop.batch_progress.total.ready
        return done, total if total < math.inf else None

    def _close(self) -> None:
        self._next_redraw = math.inf
        bars = self._bars
        self._bars = None
        if bars is not None:
            bars.stop()


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
            if isinstance(callback, EarlyStopping) and _has_stopped(callback):
                _announce(trainer, f"stopped early: {_stop_reason(callback)}")
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
        monitor = str(getattr(trainer.checkpoint_callback, "monitor", ""))
        if self._stages == ("test",):
            monitor = monitor.rpartition("/")[2]
        log.info("%s", text.plain)
        bar = trainer.progress_bar_callback
        if isinstance(bar, ProgressBar):
            width = bar.width
            shown = text if width is None else fit_epoch_line(*finished, groups, width, monitor)
            bar.write(shown, always=last)


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
