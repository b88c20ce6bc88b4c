from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property
from time import perf_counter
from typing import TYPE_CHECKING, Any, final

from lightning.pytorch.callbacks import ProgressBar as LightningProgressBar
from rich.live import Live
from rich.text import Text
from typing_extensions import override

from assay.callbacks import progress_layout
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
    validated: bool = False
    started: float = field(default_factory=perf_counter)
    before: int = 0
    """Batches that were done when it began."""

    def throughput(self) -> float | None:
        """Steps per second; None before the first one."""
        steps, seconds = self.done - self.before, perf_counter() - self.started
        return steps / seconds if steps > 0 and seconds > 0 else None


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
        self.refresh_interval = refresh_interval
        self.line_interval = line_interval
        self.min_line_interval = min_line_interval
        for name in ("refresh_interval", "line_interval", "min_line_interval"):
            if (seconds := getattr(self, name)) < 0:
                raise ValueError(
                    f"{name}={seconds} is negative; give a number of seconds, such as {name}=1.0"
                )
        if console is not None:
            self._console = console
        self._enabled = True
        self._live: Live | None = None
        self._stage = _Stage("", 0)
        self._training: _Stage | None = None
        self._next_redraw = math.inf  # while nothing is shown
        self._loss: Any = None
        self._finished: tuple[str, float, Sequence[str]] | None = None  # an epoch that has no line yet
        self._last_line = -math.inf
        self._fit_started = (0.0, 0)

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

    # -- training ------------------------------------------------------------------------------------------

    @override
    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        progress = trainer.fit_loop.epoch_loop.batch_progress
        self._fit_started = (perf_counter(), progress.total.completed)
        self._finished, self._last_line = None, -math.inf
        self._begin_epoch(trainer, done=progress.current.completed)  # a run may be resumed within an epoch

    @override
    def on_train_epoch_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self._write_epoch(trainer)
        self._begin_epoch(trainer, done=0)

    @override
    def on_train_batch_end(
        self, trainer: L.Trainer, pl_module: L.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        self._loss = outputs
        self._stage.done = batch_idx + 1
        if perf_counter() >= self._next_redraw:
            self._redraw()

    @override
    def on_train_epoch_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        stages = ("train", "val") if self._stage.validated else ("train",)
        self._finished = (self._stage.label, perf_counter() - self._stage.started, stages)

    @override
    def on_train_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self._close()
        self._write_epoch(trainer, last=True)
        self._training = self._loss = None

    # -- validation, test, prediction ----------------------------------------------------------------------

    @override
    def on_validation_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        label = stage = trainer.state.stage.dataloader_prefix if trainer.state.stage else ""
        if trainer.sanity_checking:
            label, stage = "check", "sanity_val"
        batches: Sequence[float] | float = getattr(trainer, f"num_{stage}_batches")
        epoch = f"{self._training.label}  " if self._training is not None else ""
        total = batches if isinstance(batches, (int, float)) else sum(batches)
        self._begin(_Stage(f"{epoch}{label}", total))

    @override
    def on_validation_batch_end(self, *args: Any, **kwargs: Any) -> None:
        self._stage.done += 1
        if perf_counter() >= self._next_redraw:
            self._redraw()

    @override
    def on_validation_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        if self._training is not None:
            self._stage, self._training.validated = self._training, True
            return
        self._close()
        name, loop = ("test", trainer.test_loop) if trainer.testing else ("val", trainer.validate_loop)
        if not (loop.verbose or trainer.sanity_checking):  # then Lightning prints a table
            groups = progress_layout.scalars(trainer.callback_metrics, [name])
            values = groups.get("", {}) | groups.get(name, {})
            self._say(name, perf_counter() - self._stage.started, {"": values})

    on_test_start = on_predict_start = on_validation_start
    on_test_batch_end = on_predict_batch_end = on_validation_batch_end
    on_test_end = on_validation_end

    # -- the end, whatever it was --------------------------------------------------------------------------

    @override
    def on_exception(
        self, trainer: L.Trainer, pl_module: L.LightningModule, exception: BaseException
    ) -> None:
        self._close()
        if isinstance(exception, (KeyboardInterrupt, SystemExit)):
            # After any other exception the device may be in no state to be read.
            self._write_epoch(trainer, last=True)

    @override
    def teardown(self, trainer: L.Trainer, pl_module: L.LightningModule, stage: str) -> None:
        self._close()
        self._training = self._finished = self._loss = None

    # -- drawing -------------------------------------------------------------------------------------------

    @cached_property
    def _console(self) -> Console:
        return Console()

    @property
    def _interval(self) -> float:
        return self.line_interval if self._live is None else self.refresh_interval

    def _begin_epoch(self, trainer: L.Trainer, done: int) -> None:
        label = progress_layout.epoch(trainer, trainer.current_epoch + 1)
        total = min(trainer.num_training_batches, done + _batches_to_go(trainer))
        self._training = _Stage(label, total, done, before=done)
        self._begin(self._training)

    def _begin(self, stage: _Stage) -> None:
        self._stage = stage
        if not self._enabled or self._next_redraw < math.inf:
            return
        console = self._console
        if console.is_terminal and not console.is_dumb_terminal and not console.is_jupyter:
            self._live = Live(self._line(), console=console, auto_refresh=False, transient=True)
            self._live.start(refresh=True)
        self._next_redraw = perf_counter() + self._interval

    def _redraw(self) -> None:
        began = perf_counter()
        if self._live is not None:
            self._live.update(self._line(), refresh=True)
        else:
            label = Text(self._stage.label, style="bold")
            self._console.print(Text.assemble(label, "  ", self._text()), soft_wrap=True, highlight=False)
        ended = perf_counter()
        # Metrics may be slow to compute: all redraws together take 5 % of the time at most.
        self._next_redraw = ended + (max(self._interval, 20 * (ended - began)) if self._interval > 0 else 0.0)

    def _close(self) -> None:
        self._next_redraw = math.inf
        live, self._live = self._live, None
        if live is not None:
            live.stop()

    def _write_epoch(self, trainer: L.Trainer, last: bool = False) -> None:
        now = perf_counter()
        if self._finished is None or (not last and now - self._last_line < self.min_line_interval):
            return
        (label, seconds, stages), self._finished, self._last_line = self._finished, None, now
        if self._enabled:
            self._say(label, seconds, progress_layout.scalars(trainer.callback_metrics, stages))

    def _say(self, label: str, seconds: float, groups: dict[str, dict[str, float]]) -> None:
        if self._enabled:
            width = self._console.width if self._console.is_terminal else math.inf
            text = progress_layout.line(label, seconds, groups, width)
            self._console.print(text, soft_wrap=True, highlight=False)

    def _line(self) -> Table | Text:
        stage = self._stage
        return progress_layout.with_bar(
            stage.label, self._text(), stage.done, stage.total, self._console.width
        )

    def _text(self) -> Text:
        """How far, how fast, how long, how good."""
        stage, of_training = self._stage, self._stage is self._training
        total = f"/{stage.total:.0f}" if stage.total < math.inf else ""
        parts = [Text(f"{stage.done:{max(0, len(total) - 1)}}{total}")]
        if (throughput := stage.throughput()) is not None:
            parts.append(Text(progress_layout.rate(throughput), style="cyan"))
            if total:
                left = f"{progress_layout.duration((stage.total - stage.done) / throughput)} left"
                if of_training and (in_all := self._time_left_in_all(stage)) < math.inf:
                    left += f" ({progress_layout.duration(in_all)} in all)"
                parts.append(Text(left, style="green"))
        if of_training and stage.done > 0:
            parts.append(progress_layout.pairs(self._running()))
        return Text("  ").join(part for part in parts if part)

    def _time_left_in_all(self, stage: _Stage) -> float:
        """Seconds left in the run, by its mean throughput, validation included; infinity if not known."""
        trainer, (started, before) = self.trainer, self._fit_started
        batches = _batches_to_go(trainer)
        if trainer.max_epochs is not None and trainer.max_epochs > 0:
            epochs = trainer.max_epochs - trainer.current_epoch
            batches = min(batches, epochs * trainer.num_training_batches - stage.done)
        trained = trainer.fit_loop.epoch_loop.batch_progress.total.ready - before
        return (perf_counter() - started) / trained * batches if trained > 0 else math.inf

    def _running(self) -> dict[str, float]:
        """The last step's loss and up to three metrics of the epoch so far; waits for the device."""
        loss = self._loss.get("loss") if isinstance(self._loss, dict) else self._loss
        # Lightning divides the loss of outputs by the number of accumulated batches.
        values = {} if loss is None else {"loss": float(loss) * self.trainer.accumulate_grad_batches}
        metrics: dict[str, Any] = getattr(self.trainer.lightning_module, "running_metrics", dict)()
        running = {name.removeprefix("train/"): value for name, value in metrics.items()}
        names = [name for name in running if name != "loss"][:3]
        return values | {name: float(running[name]) for name in names}


def _batches_to_go(trainer: L.Trainer) -> float:
    """Batches that the limit on optimizer steps leaves to train; infinity without one."""
    if trainer.max_steps < 0:
        return math.inf
    return (trainer.max_steps - trainer.global_step) * trainer.accumulate_grad_batches
