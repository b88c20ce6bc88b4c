"""A progress bar that costs the training step next to nothing."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from itertools import islice
from time import perf_counter
from typing import TYPE_CHECKING, Any, final

from lightning.pytorch.callbacks import ProgressBar as LightningProgressBar
from rich.live import Live
from rich.text import Text
from typing_extensions import override

from assay.callbacks import progress_text
from assay.callbacks.pace import Pace
from assay.terminal import Console

if TYPE_CHECKING:
    from collections.abc import Sequence

    import lightning as L
    from rich.table import Table


@dataclass
class _Stage:
    """A pass over some batches: an epoch of training, a validation, a test."""

    label: str
    total: float
    done: int = 0
    started: float = field(default_factory=perf_counter)
    pace: Pace = field(default_factory=Pace)

    def __post_init__(self) -> None:
        self.pace.restart(self.started, self.done)


@dataclass
class _Epoch:
    """A finished training epoch that has no line yet."""

    label: str
    seconds: float
    validated: bool


@final
class ProgressBar(LightningProgressBar):
    """One live line in a terminal, and one line an epoch that stays; plain lines in a file, pipe or notebook.

    It is redrawn by the clock, never by the step: a step leaves its number and a reference to its loss and
    looks at the time. Only a redraw formats anything or reads the device: the last loss, and what the
    module's `running_metrics()` returns (names to floats), where it has that method.

    An epoch's line is written when the next one begins, since a module may log in its own
    `on_train_epoch_end`.

    Only rank 0 shows anything.

    Args:
        refresh_interval: Seconds between two redraws of the live line, more if one is slow; 0 for each step.
        line_interval: Seconds between two lines on the state of a long epoch, where there is no terminal.
        min_line_interval: Seconds between two lines of short epochs; those in between have none. The first
            epoch and the last one always have theirs.
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
        intervals = {
            "refresh_interval": refresh_interval,
            "line_interval": line_interval,
            "min_line_interval": min_line_interval,
        }
        for name, seconds in intervals.items():
            if seconds < 0:
                raise ValueError(
                    f"{name}={seconds} is negative; give a number of seconds, such as {name}=1.0"
                )
        self.refresh_interval = refresh_interval
        self.line_interval = line_interval
        self.min_line_interval = min_line_interval
        self._console = console
        self._enabled = True
        self._live: Live | None = None
        self._stage: _Stage | None = None
        self._training: _Stage | None = None
        self._next_redraw = math.inf
        self._loss: Any = None
        self._validated = False
        self._finished: _Epoch | None = None
        self._last_line = -math.inf
        self._fit_started = (0.0, 0)

    # -- what Lightning asks of a progress bar -------------------------------------------------------------

    @override
    def disable(self) -> None:
        """Show nothing from now on."""
        self._close()
        self._enabled = False

    @override
    def enable(self) -> None:
        """Show everything from now on, on rank 0."""
        self._enabled = self._trainer is None or self._trainer.is_global_zero

    @override
    def print(self, *args: Any, **kwargs: Any) -> None:
        """Write a line that stays, past the live one."""
        if self._enabled:
            self._console = self._console or Console()
            self._console.print(" ".join(map(str, args)), soft_wrap=True, highlight=False, markup=False)

    # -- training ------------------------------------------------------------------------------------------

    @override
    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Open the live line; a run resumed in the middle of an epoch begins there."""
        progress = trainer.fit_loop.epoch_loop.batch_progress
        self._fit_started = (perf_counter(), progress.total.completed)
        self._last_line = -math.inf
        self._finished, self._validated, self._loss = None, False, None
        self._begin_training(trainer, done=progress.current.completed)

    @override
    def on_train_epoch_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Write the last epoch's line and begin a new one."""
        self._write_epoch(trainer)
        self._validated = False
        self._begin_training(trainer, done=0)

    @override
    def on_train_batch_end(
        self, trainer: L.Trainer, pl_module: L.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Note how far training is; redraw if it is time."""
        self._loss = outputs
        if self._stage is not None:
            self._stage.done = batch_idx + 1
        if perf_counter() >= self._next_redraw:
            self._redraw()

    @override
    def on_train_epoch_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Note how long the epoch took."""
        if self._training is not None:
            seconds = perf_counter() - self._training.started
            self._finished = _Epoch(self._training.label, seconds, self._validated)

    @override
    def on_train_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Write the last epoch's line and take the live line away."""
        self._close()
        self._write_epoch(trainer, last=True)
        self._training = self._loss = None

    # -- validation, test, prediction ----------------------------------------------------------------------

    @override
    def on_validation_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Show the validation in place of the epoch it belongs to."""
        batches = trainer.num_sanity_val_batches if trainer.sanity_checking else trainer.num_val_batches
        epoch = self._training.label + "  " if self._training is not None else ""
        self._begin(_Stage(f"{epoch}{'check' if trainer.sanity_checking else 'val'}", _sum(batches)))

    @override
    def on_validation_batch_end(self, trainer: L.Trainer, *args: Any, **kwargs: Any) -> None:
        """Note how far it is; redraw if it is time."""
        self._advance()

    @override
    def on_validation_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Go on with the epoch, or end."""
        if self._training is not None:
            self._validated = True
            self._training.pace.restart(perf_counter(), self._training.done)
            self._stage = self._training
        else:
            self._end_evaluation(trainer, "val", trainer.validate_loop.verbose or trainer.sanity_checking)

    @override
    def on_test_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Show the test."""
        self._begin(_Stage("test", _sum(trainer.num_test_batches)))

    @override
    def on_test_batch_end(self, trainer: L.Trainer, *args: Any, **kwargs: Any) -> None:
        """Note how far it is; redraw if it is time."""
        self._advance()

    @override
    def on_test_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """End the test."""
        self._end_evaluation(trainer, "test", trainer.test_loop.verbose)

    @override
    def on_predict_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Show the prediction."""
        self._begin(_Stage("predict", _sum(trainer.num_predict_batches)))

    @override
    def on_predict_batch_end(self, trainer: L.Trainer, *args: Any, **kwargs: Any) -> None:
        """Note how far it is; redraw if it is time."""
        self._advance()

    @override
    def on_predict_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """End the prediction."""
        self._close()

    # -- the end, whatever it was --------------------------------------------------------------------------

    @override
    def on_exception(
        self, trainer: L.Trainer, pl_module: L.LightningModule, exception: BaseException
    ) -> None:
        """Leave the terminal as it was found."""
        self._close()
        if isinstance(exception, (KeyboardInterrupt, SystemExit)):
            # After any other exception the device may be in no state to be read.
            self._write_epoch(trainer, last=True)

    @override
    def teardown(self, trainer: L.Trainer, pl_module: L.LightningModule, stage: str) -> None:
        """Leave the terminal as it was found."""
        self._close()
        self._training = self._finished = self._loss = None

    # -- drawing -------------------------------------------------------------------------------------------

    def _begin_training(self, trainer: L.Trainer, done: int) -> None:
        label = progress_text.epoch(trainer, trainer.current_epoch + 1)
        self._training = _Stage(
            label, min(trainer.num_training_batches, done + _batches_to_go(trainer)), done
        )
        self._begin(self._training)

    def _begin(self, stage: _Stage) -> None:
        self._stage = stage
        if not self._enabled or self._next_redraw < math.inf:
            return
        if self._console is None:
            self._console = Console()
        console, interval = self._console, self.line_interval
        if console.is_terminal and not console.is_dumb_terminal and not console.is_jupyter:
            interval = self.refresh_interval
            self._live = Live(self._line(), console=console, auto_refresh=False, transient=True)
            self._live.start(refresh=True)
        self._next_redraw = perf_counter() + interval

    def _advance(self) -> None:
        if self._stage is not None:
            self._stage.done += 1
        if perf_counter() >= self._next_redraw:
            self._redraw()

    def _redraw(self) -> None:
        stage, console = self._stage, self._console
        if stage is None or console is None:
            return
        began = perf_counter()
        stage.pace.sample(began, stage.done)
        if self._live is not None:
            interval = self.refresh_interval
            self._live.update(self._line(), refresh=True)
        else:
            interval = self.line_interval
            console.print(self._text(), soft_wrap=True, highlight=False)
        ended = perf_counter()
        # Metrics may be slow to compute: all redraws together take 5 % of the time at most.
        self._next_redraw = ended + (max(interval, 20 * (ended - began)) if interval > 0 else 0.0)

    def _close(self) -> None:
        self._next_redraw = math.inf
        self._stage = None
        live, self._live = self._live, None
        if live is not None:
            live.stop()

    def _end_evaluation(self, trainer: L.Trainer, name: str, has_table: bool) -> None:
        stage = self._stage
        self._close()
        if self._enabled and self._console is not None and stage is not None and not has_table:
            groups = progress_text.scalars(trainer.callback_metrics, [name])
            values = groups.get("", {}) | groups.get(name, {})
            self._say(name, perf_counter() - stage.started, {"": values})

    def _write_epoch(self, trainer: L.Trainer, last: bool = False) -> None:
        epoch, now = self._finished, perf_counter()
        if epoch is None or not self._enabled or self._console is None:
            return
        if not last and now - self._last_line < self.min_line_interval:
            return
        self._finished, self._last_line = None, now
        stages = ("train", "val") if epoch.validated else ("train",)
        groups = progress_text.scalars(trainer.callback_metrics, stages)
        self._say(epoch.label, epoch.seconds, groups)

    def _say(self, label: str, seconds: float, groups: dict[str, dict[str, float]]) -> None:
        """Write the line of an epoch: as much as fits into a terminal."""
        console = self._console
        assert console is not None  # noqa: S101 - the callers looked
        text = progress_text.line(label, seconds, groups)
        if console.is_terminal:
            text = progress_text.short_line(label, seconds, groups, console.width)
        console.print(text, soft_wrap=True, highlight=False)

    def _line(self) -> Table:
        """The live line: label, bar and numbers, cut to the width of the terminal."""
        stage, console = self._stage, self._console
        assert stage is not None  # noqa: S101 - the callers have begun a stage
        assert console is not None  # noqa: S101 - and opened the console
        return progress_text.with_bar(
            stage.label, self._text(with_label=False), stage.done, stage.total, console.width
        )

    def _text(self, with_label: bool = True) -> Text:
        stage = self._stage
        assert stage is not None  # noqa: S101 - the callers have begun a stage
        total = f"/{stage.total:.0f}" if stage.total < math.inf else ""
        parts = [Text(stage.label, style="bold")] if with_label else []
        parts.append(Text(f"{stage.done:{len(total) - 1 if total else 0}}{total}"))
        if (speed := stage.pace.steps_per_second) is not None:
            parts.append(Text(progress_text.rate(speed), style="cyan"))
        if (left := self._time_left(stage)) is not None:
            parts.append(Text(left, style="green"))
        if stage is self._training and stage.done > 0:
            parts.append(progress_text.pairs(self._running()))
        return Text("  ").join(part for part in parts if part)

    def _time_left(self, stage: _Stage) -> str | None:
        """Time left in the stage, and in all if that is known."""
        seconds = stage.pace.seconds_for(stage.total - stage.done)
        if seconds is None or not math.isfinite(seconds):
            return None
        text = f"{progress_text.duration(seconds)} left"
        if stage is self._training and (in_all := self._time_left_in_all(stage)) is not None:
            text += f" ({progress_text.duration(in_all)} in all)"
        return text

    def _time_left_in_all(self, stage: _Stage) -> float | None:
        """Time left in the run, by the mean pace since it began, validation included."""
        trainer, (started, before) = self.trainer, self._fit_started
        batches = _batches_to_go(trainer)
        if trainer.max_epochs is not None and trainer.max_epochs > 0:
            epochs = trainer.max_epochs - trainer.current_epoch
            batches = min(batches, epochs * trainer.num_training_batches - stage.done)
        trained = trainer.fit_loop.epoch_loop.batch_progress.total.ready - before
        if trained <= 0 or not math.isfinite(batches):
            return None
        return (perf_counter() - started) / trained * batches

    def _running(self) -> dict[str, float]:
        """The last step's loss and up to three metrics of the epoch so far; waits for the device."""
        values: dict[str, float] = {}
        loss = self._loss.get("loss") if isinstance(self._loss, dict) else self._loss
        if loss is not None:
            values["loss"] = float(loss)
        running = getattr(self.trainer.lightning_module, "running_metrics", None)
        if callable(running):
            names = ((name.removeprefix("train/"), float(value)) for name, value in running().items())
            values |= dict(islice(((name, value) for name, value in names if name != "loss"), 3))
        return values


def _sum(batches: Sequence[float] | float) -> float:
    return batches if isinstance(batches, (int, float)) else sum(batches)


def _batches_to_go(trainer: L.Trainer) -> float:
    """Batches that the limit on optimizer steps leaves to train; infinity without one."""
    if trainer.max_steps < 0:
        return math.inf
    return (trainer.max_steps - trainer.global_step) * trainer.accumulate_grad_batches
