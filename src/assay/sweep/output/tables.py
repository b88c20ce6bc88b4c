"""What a sweep comes to: `results.csv` has one row per job, `groups.csv` one per configuration.

Both follow from the journal alone, and hold no times: a sweep that was killed and went on ends with the same
bytes as one that was not.
"""

from __future__ import annotations

import csv
import io
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, final

from assay.config.serialize import REPETITIONS
from assay.files.atomic import write_text
from assay.quoting import spreadsheet_cell
from assay.record.runs.config_values import fold_of, varying
from assay.record.runs.statistics import mean_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from assay.record.journal import JobRecord
    from assay.record.objective import Objective
    from assay.record.runs.statistics import Mean

RESULTS: Final = "results.csv"
GROUPS: Final = "groups.csv"
_STATISTICS: Final = ("mean", "std", "low", "high", "n")


@final
@dataclass(frozen=True)
class Group:
    """Jobs that repeat one configuration.

    Attributes:
        values: Overrides that not all jobs of the sweep share, without seed and fold.
        jobs: Numbers, in order.
        finished: How many of them have.
        scores: Over those, the objectives and every other final score, by name.
    """

    values: Mapping[str, str]
    jobs: tuple[int, ...]
    finished: int
    scores: Mapping[str, Mean]


def groups(jobs: Sequence[JobRecord], objectives: Sequence[Objective]) -> list[Group]:
    """Put together what differs in the seed and the fold alone, in the order of the first job of each.

    Args:
        jobs: Jobs, in order.
        objectives: What they are compared by.
    """
    together: dict[tuple[tuple[str, str], ...], list[JobRecord]] = {}
    for job, values in zip(jobs, varying(jobs), strict=True):
        key = tuple((name, value) for name, value in values.items() if name not in REPETITIONS)
        together.setdefault(key, []).append(job)
    return [_group(dict(key), members, objectives) for key, members in together.items()]


def ranked(jobs: Sequence[JobRecord], objective: Objective) -> list[Group]:
    """Groups from the best to the worst; those with a job that has not finished come after the whole ones.

    Args:
        jobs: Jobs, in order.
        objective: The first one.
    """

    def key(group: Group) -> tuple[bool, bool, float]:
        score = group.scores.get(objective.name)
        return group.finished < len(group.jobs), *objective.sort_key(score.mean if score else None)

    return sorted(groups(jobs, [objective]), key=key)


def best_job(jobs: Sequence[JobRecord], objective: Objective) -> JobRecord | None:
    """The best job of the best group; None where no job has a score.

    Args:
        jobs: Jobs, in order.
        objective: The first one.
    """
    by_number = {job.number: job for job in jobs}
    for group in ranked(jobs, objective):
        members = [by_number[number] for number in group.jobs]
        finished = [job for job in members if job.status == "finished" and _score(job, objective) is not None]
        if finished:
            return min(finished, key=lambda job: objective.sort_key(_score(job, objective)))
    return None


def write_tables(directory: Path, jobs: Sequence[JobRecord], objectives: Sequence[Objective]) -> None:
    """Write both tables; `groups.csv` only where a configuration was repeated.

    Args:
        directory: Of the sweep.
        jobs: Jobs, in order.
        objectives: What they are compared by.
    """
    write_text(directory / RESULTS, results_csv(jobs))
    grouped = groups(jobs, objectives)
    if any(len(group.jobs) > 1 for group in grouped):
        write_text(directory / GROUPS, groups_csv(grouped, objectives))
    else:
        (directory / GROUPS).unlink(missing_ok=True)


def results_csv(jobs: Sequence[JobRecord]) -> str:
    """One row per job: what was typed for it, how it ended, and every last score."""
    rows = []
    for job, values in zip(jobs, varying(jobs), strict=True):
        row: dict[str, Any] = {"job": job.number, **values, "status": job.status}
        if job.outcome is not None:
            row["cause"] = job.outcome.cause
            row["changed"] = " ".join(job.changes)
            best = job.outcome.best
            if best:
                row |= {f"best {best['monitor']}": best["value"], "best epoch": best["epoch"]}
            row |= dict(sorted(job.outcome.metrics.items()))
        rows.append(row)
    first = [
        "job",
        *_in_order({key: None for values in varying(jobs) for key in values}),
        "status",
        "cause",
        "changed",
    ]
    scores = {key: None for row in rows for key in row if key not in first}
    filled = {key for row in rows for key, value in row.items() if value != ""}
    columns = [*first, *sorted(scores, key=lambda name: (not name.startswith("best "), name))]
    return csv_text([name for name in columns if name in filled], rows)


def groups_csv(grouped: Sequence[Group], objectives: Sequence[Objective]) -> str:
    """A row per group: its values, how many jobs finished, and its scores.

    Of each score the mean, the standard deviation, the ends of the 95 % interval, and how many there are.

    Args:
        grouped: From `groups`.
        objectives: What they are compared by; they come first.
    """
    names = [objective.name for objective in objectives]
    names += sorted({name for group in grouped for name in group.scores} - set(names))
    rows = []
    for group in grouped:
        row: dict[str, Any] = {**group.values, "finished": group.finished, "of": len(group.jobs)}
        for name in names:
            score = group.scores.get(name)
            row |= {f"{name} {what}": getattr(score, what, None) for what in _STATISTICS}
            row[f"{name} n"] = score.n if score else 0
        rows.append(row)
    values = {key: None for group in grouped for key in group.values}
    columns = [f"{name} {what}" for name in names for what in _STATISTICS]
    return csv_text([*_in_order(values), "finished", "of", *columns], rows)


def _group(values: dict[str, str], members: Sequence[JobRecord], objectives: Sequence[Objective]) -> Group:
    finished = [job for job in members if job.status == "finished" and job.outcome is not None]
    outcomes = [job.outcome for job in finished if job.outcome is not None]
    folds = [fold_of(job.overrides) for job in finished]
    names = dict.fromkeys(name for outcome in outcomes for name in outcome.metrics)
    means = {name: mean_of((outcome.metrics.get(name) for outcome in outcomes), folds) for name in names}
    means |= {aim.name: mean_of((aim.score(outcome) for outcome in outcomes), folds) for aim in objectives}
    scores = {name: mean for name, mean in means.items() if mean is not None}
    return Group(values, tuple(job.number for job in members), len(outcomes), scores)


def _score(job: JobRecord, objective: Objective) -> float | None:
    return objective.score(job.outcome) if job.outcome is not None else None


def _in_order(keys: Iterable[str]) -> list[str]:
    """The seed and the fold after what they repeat."""
    return sorted(keys, key=lambda key: key in REPETITIONS)


def csv_text(columns: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> str:
    """Rows as CSV; no cell is a formula to a spreadsheet."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(map(spreadsheet_cell, columns))
    for row in rows:
        writer.writerow([_cell(row.get(name)) for name in columns])
    return text.getvalue()


def _cell(value: Any) -> str:
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return "" if value is None else "nan"
    return repr(value) if isinstance(value, float) else str(spreadsheet_cell(value))
