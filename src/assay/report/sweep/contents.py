"""What the page of a sweep, or of several runs, is made of: plain values, read once."""

from __future__ import annotations

import statistics
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Literal, TypeAlias, final

from assay.record.outcome import Status
from assay.record.runs.config_values import in_one_line, in_short
from assay.record.runs.statistics import mean_of
from assay.report.table.comparison import verdict_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from assay.record.objective import Objective
    from assay.record.outcome import Outcome
    from assay.record.run_record import RunRecord
    from assay.record.runs.statistics import Mean


@final
@dataclass(frozen=True)
class Group:
    """One configuration.

    Attributes:
        values: What not all configurations share, as text.
        jobs: One per seed.
        scores: For each objective, the mean of the jobs that have finished with one; None without any.
    """

    values: Mapping[str, str]
    jobs: tuple[Job, ...]
    scores: tuple[Mean | None, ...]

    @property
    def finished(self) -> int:
        """Jobs that have."""
        return sum(job.status == "finished" for job in self.jobs)

    @property
    def status(self) -> str:
        """Of its jobs, where it is one; else `finished` where some have."""
        kinds = {job.status for job in self.jobs}
        return next(iter(kinds)) if len(kinds) == 1 else "finished" if self.finished else "failed"

    @property
    def label(self) -> str:
        """What it has of its own, on one line."""
        return in_one_line(self.values) or (self.jobs[0].name if len(self.jobs) == 1 else "all")

    @property
    def words(self) -> str:
        """Its values alone: for a legend, where there is no room for keys."""
        return ", ".join(in_short(self.values).values()) or self.label

    @property
    def seconds(self) -> float | None:
        """Mean time of its jobs that have finished."""
        times = [
            job.outcome.seconds for job in self.jobs if job.status == "finished" and job.outcome is not None
        ]
        return statistics.fmean(times) if times else None


def ranked(contents: Contents) -> list[Group]:
    """Configurations from the best to the worst; those with a job that has not finished come last."""
    together: dict[tuple[str, tuple[tuple[str, str], ...]], list[Job]] = {}
    for job in contents.jobs:
        together.setdefault((job.configuration, tuple(job.values.items())), []).append(job)
    groups = [
        Group(dict(key), tuple(jobs), tuple(_score(jobs, aim) for aim in contents.objectives))
        for (_, key), jobs in together.items()
    ]
    first = contents.objectives[0]

    def order(group: Group) -> tuple[bool, bool, float]:
        score = group.scores[0]
        return group.finished < len(group.jobs), *first.sort_key(score.mean if score else None)

    return sorted(groups, key=order)


def verdict(contents: Contents, groups: Sequence[Group]) -> str:
    """Whether the gap between the best and the second is more than noise; empty where there are no two.

    Args:
        contents: Of the page.
        groups: From `ranked`.
    """
    if len(groups) < 2 or not (first := groups[0].scores[0]) or not (second := groups[1].scores[0]):
        return ""
    aim = contents.objectives[0]
    is_behind = aim.sort_key(second.mean) < aim.sort_key(first.mean)
    return verdict_of(aim.name, first, second, is_behind=is_behind).text


def _score(jobs: Sequence[Job], aim: Objective) -> Mean | None:
    finished = [job for job in jobs if job.status == "finished"]
    scores = (aim.score(job.outcome) if job.outcome is not None else None for job in finished)
    return mean_of(scores, [job.fold for job in finished])


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
        return in_one_line(self.values) or self.name


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
