"""What the page of a sweep, or of several runs, is made of: plain values, read once."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Literal, TypeAlias, final

from assay.record.outcome import Status
from assay.record.runs.varying import in_short

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from assay.record.objective import Objective
    from assay.record.outcome import Outcome
    from assay.record.run_record import RunRecord

JobStatus: TypeAlias = Status | Literal["waiting", "broken"]


@final
@dataclass(frozen=True)
class Span:
    """A time in which a job ran.

    Attributes:
        start: UTC.
        end: UTC; now for one that still runs.
        status: How it ended.
        attempt: From 1.
        place: Host, and GPUs where it had its own.
    """

    start: datetime
    end: datetime
    status: JobStatus
    attempt: int = 1
    place: str = ""


@final
@dataclass(frozen=True)
class Job:
    """A run, or a job of a sweep that may not have one.

    Attributes:
        name: Its number in the sweep, or its path.
        values: What not all jobs share, without the seed, as text.
        seed: Of the run; empty where it is not known.
        status: How it ended.
        outcome: Scores and reason; None where nothing is known.
        run_dir: Where its files are; None without one.
        output: File that took what its process printed; None without one.
        attempts: Begun so far.
        spans: When and where it ran.
        configuration: What tells configurations apart whose values are the same.
        fold: Which one it tests; None without folds.
    """

    name: str
    values: Mapping[str, str]
    seed: str
    status: JobStatus
    outcome: Outcome | None = None
    run_dir: Path | None = None
    output: Path | None = None
    attempts: int = 1
    spans: tuple[Span, ...] = ()
    configuration: str = ""
    fold: int | None = None

    @property
    def tested(self) -> dict[str, float]:
        """Its scores of the test."""
        metrics = self.outcome.metrics if self.outcome is not None else {}
        return {name: value for name, value in metrics.items() if name.startswith("test/")}

    @property
    def label(self) -> str:
        """What it has of its own, on one line."""
        return " ".join(f"{key}={value}" for key, value in in_short(self.values).items()) or self.name


@final
@dataclass(frozen=True)
class Contents:
    """All that a page says of a sweep or of several runs.

    Attributes:
        title: The folder's name, or how many runs.
        source: The folder, or the folders.
        jobs: In order.
        objectives: What they are compared by; the first one decides.
        shared: Overrides that all jobs have.
        typed: The command that began it, and those it went on by; none for runs without a sweep.
        notices: What is wrong, one sentence each.
        scales: Whether the search drew a key's values on a logarithmic scale, where it said so.
        is_sweep: Whether a journal knows of all jobs.
        decides: Whether the first objective can tell which is best: one quantity, of the same data.
    """

    title: str
    source: str
    jobs: tuple[Job, ...]
    objectives: tuple[Objective, ...]
    shared: tuple[str, ...] = ()
    typed: tuple[str, ...] = ()
    notices: tuple[str, ...] = ()
    scales: Mapping[str, bool] = field(default_factory=dict)
    is_sweep: bool = True
    decides: bool = True

    @property
    def keys(self) -> list[str]:
        """Of the values that not all jobs share, in the order in which they appear."""
        return list(dict.fromkeys(key for job in self.jobs for key in job.values))


def spans_of(record: RunRecord, *, is_alive: bool) -> tuple[Span, ...]:
    """When and where a run ran, from its record.

    Args:
        record: Of the run.
        is_alive: Whether a process writes it now.
    """
    starts = [record.started, *(entry.get("at", "") for entry in record.resumed)]
    before = [entry.get("before") or {} for entry in record.resumed]
    ends: list[tuple[object, object, object]] = [
        (one.get("finished"), one.get("seconds"), one.get("status")) for one in before
    ]
    last = "running" if is_alive else record.outcome.status
    ends.append((record.finished, record.seconds, last))
    machines = [record.machine, *(entry.get("machine") or record.machine for entry in record.resumed)]
    spans = []
    for number, (started, (finished, seconds, status), machine) in enumerate(
        zip(starts, ends, machines, strict=True), 1
    ):
        start = time_of(started)
        if start is None:
            continue
        end = time_of(finished)
        if end is None and isinstance(seconds, int | float) and 0 < seconds < 1e9:
            end = start + timedelta(seconds=seconds)
        if end is None:
            end = datetime.now(UTC) if is_alive and number == len(starts) else start
        known: JobStatus = status if status in _STATUSES else "interrupted"  # type: ignore[assignment]  # one of them
        spans.append(Span(start, max(start, end), known, number, place_of(machine)))
    return tuple(spans)


def place_of(machine: Mapping[str, object]) -> str:
    """The host, and the GPUs where the job was given its own.

    >>> place_of({"hostname": "node7", "gpus": ["H100"], "environment": {"CUDA_VISIBLE_DEVICES": "2"}})
    'node7 · GPU 2'
    """
    environment = machine.get("environment")
    devices = environment.get("CUDA_VISIBLE_DEVICES", "") if isinstance(environment, dict) else ""
    host = str(machine.get("hostname") or "unknown host")
    return f"{host} · GPU {devices}" if machine.get("gpus") and devices else host


def time_of(text: object) -> datetime | None:
    """A time as records and journals say it; None for anything else.

    Args:
        text: UTC, ISO 8601.
    """
    try:
        time = datetime.fromisoformat(text) if isinstance(text, str) else None
    except ValueError:
        return None
    return time.replace(tzinfo=UTC) if time is not None and time.tzinfo is None else time


_STATUSES = ("finished", "failed", "pruned", "interrupted", "running")
