"""A sweep in a terminal: a line for each job that has ended, and below them what is running."""

from __future__ import annotations

import csv
import os
from collections import Counter
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final, final

from rich.progress import Progress, TextColumn, TimeElapsedColumn
from rich.text import Text

from assay.analysis.objective import format_score
from assay.analysis.run import format_values
from assay.errors import first_line
from assay.files.symlinks import open_append, read_tail
from assay.quoting import format_duration
from assay.record.run_record import now

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

    from rich.progress import TaskID

    from assay.analysis.objective import Objective
    from assay.record.journal import JobRecord
    from assay.record.run_record import Outcome
    from assay.terminal import Console


_TAIL: Final = 4096
"""Bytes at the end of metrics.csv that the last scores stand in."""
_IN_THE_REASON: Final = ("", "exception", "machine")
"""Causes that the reason states already."""


@final
class SweepProgress:
    """Shows a sweep: live in a terminal, plain lines elsewhere."""

    def __init__(
        self,
        console: Console,
        objective: Objective,
        slots: int,
        fixed: Iterable[str] = (),
        log: Path | None = None,
    ) -> None:
        self._console, self._objective, self._slots = console, objective, max(1, slots)
        self._fixed, self._log = frozenset(fixed), log
        self.only: set[int] | None = None
        """Jobs that are counted; None for all."""
        self._seconds: list[float] = []
        columns = (
            TextColumn("{task.description}", markup=False),
            TextColumn("{task.fields[state]}", markup=False, style="dim"),
            TimeElapsedColumn(),
        )
        self._live = Progress(
            *columns, console=console, auto_refresh=False, transient=True, disable=not console.is_terminal
        )
        self._whole = self._live.add_task("", state="")
        self._running: dict[int, tuple[TaskID, Path, int]] = {}

    def __enter__(self) -> SweepProgress:
        with ignore_closed_output(self._console):
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        with ignore_closed_output(self._console):
            self._live.stop()

    def show_start(self, job: JobRecord, run_dir: Path, epochs: Any) -> None:
        """Show that an attempt starts."""
        task = self._live.add_task(f"● {job.number}  {self._label(job)}", state="starting")
        self._running[job.number] = task, run_dir, epochs if isinstance(epochs, int) else 0
        if self._live.disable and self._slots == 1:
            self._print(Text(f"job {job.number}  {self._label(job)}", style="dim"))

    def show_end(self, job: JobRecord, outcome: Outcome, *, again: bool = False) -> None:
        """Show how an attempt ended."""
        if job.number in self._running:  # else it could not even be started
            self._live.remove_task(self._running.pop(job.number)[0])
        if outcome.status == "finished":
            self._seconds.append(outcome.seconds)
        self._print(self._line(job, outcome, again=again))

    def print_message(self, text: str) -> None:
        """Print a message."""
        self._print(Text(text))

    def refresh(self, jobs: Mapping[int, JobRecord], total: int) -> None:
        """Redraw the running jobs."""
        if self._live.disable:
            return
        counted = jobs if self.only is None else self.only
        counts: Counter[str] = Counter(jobs[number].status for number in counted)
        counts["waiting"] += max(0, total - counts.total())
        order = ("finished", "pruned", "failed", "running", "waiting")
        text = "  ".join(f"{counts[status]} {status}" for status in order if counts[status])
        num_left = counts["waiting"] + counts["running"]
        mean = sum(self._seconds) / max(1, len(self._seconds))
        state = f"about {format_duration(num_left * mean / self._slots)} left" if mean and num_left else ""
        self._live.update(self._whole, description=text, state=state)
        for task, run_dir, epochs in self._running.values():
            state = last_progress(run_dir, self._objective.name, epochs) or "starting"
            self._live.update(task, state=state)
        with ignore_closed_output(self._console):
            self._live.refresh()

    def _print(self, line: Text) -> None:
        with ignore_closed_output(self._console):
            self._console.print(line)
        if self._log is not None:
            with suppress(OSError), os.fdopen(open_append(self._log), "a", encoding="utf-8") as file:
                file.write(f"{now()} {line.plain}\n")

    # -- drawing -----------------------------------------------------------------------------------------

    def _label(self, job: JobRecord) -> str:
        varying = (text.partition("=") for text in job.overrides if text not in self._fixed)
        return format_values({key: value for key, _, value in varying})

    def _line(self, job: JobRecord, outcome: Outcome, *, again: bool) -> Text:
        symbol, style = {
            "finished": ("✓", "green"),
            "pruned": ("✂", "yellow"),
            "interrupted": ("⏸", "yellow"),
            "failed": ("✗", "red"),
        }[outcome.status]
        if not symbol.encode(self._console.encoding, "ignore"):
            symbol = {"✓": "+", "✂": "-", "⏸": "|", "✗": "x"}[symbol]
        line = Text.assemble((f"{symbol} {job.number:<4}", style), f" {self._label(job)}  ")
        if outcome.status == "failed":
            line.append(failure_text(outcome), style="red")
            if again:
                line.append("  retrying from its last checkpoint", style="yellow")
        else:
            if outcome.status == "pruned":
                line.append(outcome.reason)
            score = self._objective.score(outcome) if outcome.status == "finished" else None
            score_text = "" if score is None else format_score(self._objective.name, score)
            line.append(f"{self._objective.name} {score_text}" if score_text else "", style="bold")
            if outcome.status == "interrupted":
                line.append(f"  {outcome.status}", style=style)
            line.append(f"  {outcome.seconds:.1f} s", style="dim")
        return line


@contextmanager
def ignore_closed_output(console: Console) -> Iterator[None]:
    """Ignore a closed terminal or pipe while printing in this block: the jobs go on."""
    try:
        yield
    # rich exits the program when a pipe is closed.
    except (OSError, SystemExit) as error:
        if isinstance(error, SystemExit) and not isinstance(error.__context__, BrokenPipeError):
            raise
        console.quiet = True
        with suppress(OSError, ValueError):  # a custom stream may have no descriptor
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, console.file.fileno())
            os.close(nowhere)


def last_progress(run_dir: Path, name: str, epochs: int = 0) -> str:
    """How far a run is: its epoch, and the last score."""
    epoch = score = ""
    path = run_dir / "metrics.csv"
    with suppress(OSError), path.open(encoding="utf-8", errors="replace") as file:
        # What the end begins with is the header, or the rest of a row.
        rows = read_tail(path, _TAIL).decode(errors="replace").splitlines()[1:]
        for row in csv.DictReader([file.readline(), *rows]):
            epoch, score = row.get("epoch") or epoch, row.get(name) or score
    if not epoch.isdigit():
        return ""
    text = f"epoch {int(epoch) + 1}{f'/{epochs}' if epochs > 0 else ''}"
    with suppress(ValueError):  # a row that is being written
        text += f"  {name} {format_score(name, float(score))}"
    return text


def failure_text(outcome: Outcome) -> str:
    """Why a job has failed, in a line."""
    cause = "" if outcome.cause in _IN_THE_REASON else outcome.cause.replace("non_", "not ").replace("_", " ")
    reason = first_line(outcome.reason)
    return f"{cause}{': ' if cause and reason else ''}{reason}"
