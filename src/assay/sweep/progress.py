"""A sweep in a terminal: a line for each job that has ended, and below them what is running."""

from __future__ import annotations

import csv
import os
import time
from collections import Counter
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, final

from rich.console import Group
from rich.live import Live
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from assay.analysis.config_values import in_one_line
from assay.analysis.objective import format_score
from assay.errors import first_line
from assay.files.symlinks import appending
from assay.quoting import duration

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

    from assay.analysis.objective import Objective
    from assay.record.journal import JobRecord
    from assay.record.outcome import Outcome
    from assay.terminal import Console


_TAIL: Final = 4096
"""Bytes at the end of metrics.csv that the last scores stand in."""
_IN_THE_REASON: Final = ("", "exception", "machine")
"""Causes that the reason itself tells."""


@dataclass
class _Row:
    job: JobRecord
    run_dir: Path
    epochs: int = 0
    started: float = field(default_factory=time.monotonic)


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
        self._rows: dict[int, _Row] = {}
        self._only: set[int] | None = None
        self._fixed, self._log = frozenset(fixed), log
        self._counts: Counter[str] = Counter()
        self._seconds: list[float] = []
        self._live: Live | None = None

    def __enter__(self) -> SweepProgress:
        if self._console.is_terminal:
            self._live = Live(console=self._console, auto_refresh=False, transient=True)
            with shown(self._console):
                self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            with shown(self._console):
                self._live.stop()
            self._live = None

    def started(self, job: JobRecord, run_dir: Path, epochs: Any) -> None:
        """An attempt begins."""
        self._rows[job.number] = _Row(job, run_dir, epochs if isinstance(epochs, int) else 0)
        if self._live is None and self._slots == 1:
            self._print(Text(f"job {job.number}  {self._label(job)}", style="dim"))

    def ended(self, job: JobRecord, outcome: Outcome, *, again: bool = False) -> None:
        """An attempt has ended."""
        self._rows.pop(job.number, None)
        if outcome.status == "finished":
            self._seconds.append(outcome.seconds)
        self._print(self._line(job, outcome, again=again))

    def say(self, text: str) -> None:
        """Something is to be known."""
        self._print(Text(text))

    def tick(self, jobs: Mapping[int, JobRecord], total: int) -> None:
        """A moment has passed: draw what is running."""
        if self._live is None:
            return
        counted = jobs.keys() if self._only is None else self._only
        self._counts = Counter(jobs[number].status for number in counted)
        self._counts["waiting"] += max(0, total - self._counts.total())
        with shown(self._console):
            self._live.update(self._view(), refresh=True)

    def count_only(self, numbers: Iterable[int]) -> None:
        """Count these jobs alone."""
        self._only = set(numbers)

    def _print(self, line: Text) -> None:
        with shown(self._console):
            self._console.print(line)
        if self._log is not None:
            when = datetime.now(UTC).isoformat(timespec="seconds")
            with suppress(OSError), os.fdopen(appending(self._log), "a", encoding="utf-8") as file:
                file.write(f"{when} {line.plain}\n")

    # -- drawing -----------------------------------------------------------------------------------------

    def _label(self, job: JobRecord) -> str:
        own = (text.partition("=") for text in job.overrides if text not in self._fixed)
        return in_one_line({key: value for key, _, value in own})

    def _line(self, job: JobRecord, outcome: Outcome, *, again: bool) -> Text:
        mark, style = {
            "finished": ("✓", "green"),
            "pruned": ("✂", "yellow"),
            "interrupted": ("⏸", "yellow"),
            "failed": ("✗", "red"),
        }[outcome.status]
        if not mark.encode(self._console.encoding, "ignore"):
            mark = {"✓": "+", "✂": "-", "⏸": "|", "✗": "x"}[mark]
        line = Text.assemble((f"{mark} {job.number:<4}", style), f" {self._label(job)}  ")
        if outcome.status == "failed":
            line.append(why(outcome), style="red")
            if again:
                line.append("  tried again: goes on from its last checkpoint", style="yellow")
        else:
            if outcome.status == "pruned":
                line.append(outcome.reason)
            score = self._objective.score(outcome) if outcome.status == "finished" else None
            shown = "" if score is None else format_score(self._objective.name, score)
            line.append(f"{self._objective.name} {shown}" if shown else "", style="bold")
            if outcome.status == "interrupted":
                line.append(f"  {outcome.status}", style=style)
            line.append(f"  {outcome.seconds:.1f} s", style="dim")
        return line

    def _view(self) -> Group:
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), show_header=False)
        for column in ("job", "what", "progress", "time"):
            table.add_column(column, no_wrap=True, overflow="ellipsis")
        now = time.monotonic()
        # What does not fit on the screen would scroll it with each refresh.
        fitting = max(1, self._console.height - 4)
        for number, row in list(self._rows.items())[:fitting]:
            progress = last_progress(row.run_dir, self._objective.name, row.epochs)
            table.add_row(
                f"[cyan]● {number}[/cyan]",
                escape(self._label(row.job)),
                progress or "[dim]starting[/dim]",
                f"[dim]{now - row.started:.0f} s[/dim]",
            )
        return Group(table, self._summary())

    def _summary(self) -> Text:
        counts = self._counts
        order = ("finished", "pruned", "failed", "running", "waiting")
        shown = (status for status in order if counts[status] or status == "finished")
        text = "  ".join(f"{counts[status]} {status}" for status in shown)
        left = counts["waiting"] + counts["running"]
        if not self._seconds or not left:
            return Text(text, style="bold")
        each = sum(self._seconds) / len(self._seconds)
        now = time.monotonic()
        spent = sum(min(each, now - row.started) for row in self._rows.values())
        time_left = duration(max(0.0, left * each - spent) / self._slots)
        return Text(f"{text}  about {time_left} left", style="bold")


@contextmanager
def shown(console: Console) -> Iterator[None]:
    """Print in this block, which a terminal or reader that is gone does not end: the jobs matter more."""
    try:
        yield
    # rich leaves the program where a pipe is closed, unless it is told not to.
    except (OSError, SystemExit) as error:
        if isinstance(error, SystemExit) and not isinstance(error.__context__, BrokenPipeError):
            raise
        console.quiet = True
        with suppress(OSError, ValueError):  # a stream of somebody's own has no descriptor
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, console.file.fileno())
            os.close(nowhere)


def last_progress(run_dir: Path, name: str, epochs: int = 0) -> str:
    """How far a run is: its epoch, and the last score."""
    epoch = score = ""
    with suppress(OSError), (run_dir / "metrics.csv").open("rb") as file:
        header = file.readline()
        if (at := os.fstat(file.fileno()).st_size - _TAIL) > file.tell():
            file.seek(at)
            file.readline()  # the rest of a row
        lines = (header + file.read()).decode(errors="replace").splitlines()
        for row in csv.DictReader(lines):
            epoch, score = row.get("epoch") or epoch, row.get(name) or score
    if not epoch.isdigit():
        return ""
    text = f"epoch {int(epoch) + 1}{f'/{epochs}' if epochs > 0 else ''}"
    with suppress(ValueError):  # a row that is being written
        text += f"  {name} {format_score(name, float(score))}"
    return text


def why(outcome: Outcome) -> str:
    """Why a job has failed, in a line."""
    cause = "" if outcome.cause in _IN_THE_REASON else outcome.cause.replace("non_", "not ").replace("_", " ")
    reason = first_line(outcome.reason)
    return f"{cause}{': ' if cause and reason else ''}{reason}"
