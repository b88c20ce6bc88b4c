"""Jobs of a sweep, or runs, that repeat one configuration: their scores, their order, and their tables."""

from __future__ import annotations

import csv
import io
import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, final

from assay.analysis.config_values import in_one_line, in_short, varying
from assay.analysis.objective import Objective
from assay.analysis.statistics import mean_of
from assay.config.serialize import REPETITIONS
from assay.quoting import spreadsheet_cell
from assay.terminal import printable

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Mapping, Sequence
    from pathlib import Path

    from assay.analysis.statistics import Mean
    from assay.record.journal import JobRecord
    from assay.record.outcome import JobStatus, Outcome

_STATISTICS: Final = ("mean", "std", "low", "high", "n")


@final
@dataclass(frozen=True)
class Job:
    """A run, or a job of a sweep that may not have one."""

    name: str
    values: Mapping[str, str]
    seed: str
    status: JobStatus
    outcome: Outcome | None = None
    run_dir: Path | None = None
    output: Path | None = None
    attempts: int = 1
    configuration: str = ""
    fold: int | None = None

    @property
    def tested(self) -> dict[str, float]:
        """Its scores of the test."""
        metrics = self.outcome.metrics if self.outcome is not None else {}
        return {name: value for name, value in metrics.items() if name.startswith("test/")}


@final
@dataclass(frozen=True)
class JobGroup:
    """Jobs that repeat one configuration, and their mean score for each objective."""

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
        only = self.jobs[0] if len(self.jobs) == 1 else None
        return in_one_line(self.values) or (only.name if only else "all")

    @property
    def words(self) -> str:
        """Its values alone: for a legend, where there is no room for keys."""
        return ", ".join(in_short(self.values).values()) or self.label

    @property
    def seconds(self) -> float | None:
        """Mean time of its jobs that have finished."""
        times = [outcome.seconds for _, outcome in _finished(self.jobs)]
        return statistics.fmean(times) if times else None


def _finished(jobs: Sequence[Job]) -> list[tuple[Job, Outcome]]:
    return [(job, job.outcome) for job in jobs if job.status == "finished" and job.outcome is not None]


def jobs_of(records: Sequence[JobRecord]) -> list[Job]:
    """Jobs as their journal has them; those that differ in seed and fold alone have equal values."""
    return [
        Job(
            str(record.number),
            {name: value for name, value in values.items() if name not in REPETITIONS},
            str(record.seed),
            record.status,
            record.outcome,
            attempts=record.attempts,
            fold=record.fold,
        )
        for record, values in zip(records, varying(records), strict=True)
    ]


def group_jobs(jobs: Iterable[Job], aims: Sequence[Objective]) -> list[JobGroup]:
    """Put together the jobs of one configuration, in the order of the first of each."""
    together: dict[Hashable, list[Job]] = {}
    for job in jobs:
        together.setdefault((job.configuration, *job.values.items()), []).append(job)
    return [JobGroup(own[0].values, tuple(own), _means(own, aims)) for own in together.values()]


def _means(jobs: Sequence[Job], aims: Sequence[Objective]) -> tuple[Mean | None, ...]:
    done = _finished(jobs)
    folds = [job.fold for job, _ in done]
    return tuple(mean_of((aim.score(outcome) for _, outcome in done), folds) for aim in aims)


def rank(groups: Sequence[JobGroup], aim: Objective) -> list[JobGroup]:
    """From the best to the worst by the first score; those with a job that has not finished come last."""
    return sorted(groups, key=lambda group: _order(group, aim))


def _order(group: JobGroup, aim: Objective) -> tuple[bool, bool, float]:
    score = group.scores[0]
    return group.finished < len(group.jobs), *aim.sort_key(score.mean if score else None)


def groups(records: Sequence[JobRecord], objectives: Sequence[Objective]) -> list[JobGroup]:
    """The configurations of a sweep."""
    return group_jobs(jobs_of(records), objectives)


def best_job(records: Sequence[JobRecord], objective: Objective) -> JobRecord | None:
    """The best job of the best group; None where no job has a score."""
    by_name = {str(record.number): record for record in records}
    for group in rank(groups(records, [objective]), objective):
        scores = {job.name: objective.score(outcome) for job, outcome in _finished(group.jobs)}
        if any(score is not None for score in scores.values()):
            return by_name[min(scores, key=lambda name: objective.sort_key(scores[name]))]
    return None


def results_csv(jobs: Sequence[JobRecord]) -> str:
    """One row per job: what was typed for it, how it ended, and every last score."""
    rows: list[dict[str, Any]] = []
    for job, values in zip(jobs, varying(jobs), strict=True):
        row: dict[str, Any] = {"job": job.number, **values, "status": job.status}
        if job.outcome is not None:
            row["cause"] = job.outcome.cause
            if best := job.outcome.best:
                row |= {f"best {best['monitor']}": best["value"], "best epoch": best["epoch"]}
            row |= dict(sorted(job.outcome.metrics.items()))
        rows.append(row)
    typed = dict.fromkeys(key for values in varying(jobs) for key in values)
    first = ["job", *_in_order(typed), "status", "cause"]
    scores = {key: None for row in rows for key in row if key not in first}
    filled = {key for row in rows for key, value in row.items() if value != ""}
    columns = [*first, *sorted(scores, key=lambda name: (not name.startswith("best "), name))]
    return _csv_of([name for name in columns if name in filled], rows)


def groups_csv(jobs: Sequence[JobRecord], objectives: Sequence[Objective]) -> str:
    """One row per configuration: its values, how many jobs finished, and the mean of every score."""
    logged = {name for job in jobs if job.outcome is not None for name in job.outcome.metrics}
    rest = sorted(logged - {aim.name for aim in objectives})
    aims = [*objectives, *(Objective(name, "minimize") for name in rest)]
    rows = []
    grouped = groups(jobs, aims)
    for group in grouped:
        row: dict[str, Any] = {**group.values, "finished": group.finished, "of": len(group.jobs)}
        for aim, score in zip(aims, group.scores, strict=True):
            row |= {f"{aim.name} {what}": getattr(score, what, None) for what in _STATISTICS}
            row[f"{aim.name} n"] = score.n if score else 0
        rows.append(row)
    values = dict.fromkeys(key for group in grouped for key in group.values)
    columns = [f"{aim.name} {what}" for aim in aims for what in _STATISTICS]
    return _csv_of([*_in_order(values), "finished", "of", *columns], rows)


def _csv_of(columns: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> str:
    return csv_text(columns, ([row.get(name) for name in columns] for row in rows))


def _in_order(keys: Iterable[str]) -> list[str]:
    """The seed and the fold after what they repeat."""
    return sorted(keys, key=lambda key: key in REPETITIONS)


def csv_text(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """Rows as CSV; no cell is a formula to a spreadsheet."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerows([_cell(value) for value in row] for row in (columns, *rows))
    return text.getvalue()


def _cell(value: Any) -> str:
    if value is None:
        return ""
    return printable(spreadsheet_cell(value)) if isinstance(value, str) else repr(value)
