"""Runs, or jobs of a sweep, that repeat one configuration: their scores, their order, and their tables."""

from __future__ import annotations

import csv
import io
import math
import statistics
from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, final

from assay.analysis.run import Run, in_one_line, in_short, typed_values, varying
from assay.analysis.statistics import mean_of
from assay.config.serialize import REPETITIONS
from assay.quoting import spreadsheet_cell
from assay.record.run_record import Outcome
from assay.terminal import printable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from assay.analysis.objective import Objective
    from assay.analysis.statistics import Mean
    from assay.record.journal import JobRecord

_STATISTICS: Final = ("mean", "std", "low", "high", "n")


@final
@dataclass(frozen=True)
class Row:
    """Runs that are repetitions of one configuration, or that share the values that were grouped by."""

    values: Mapping[str, str | None]
    runs: tuple[Run, ...]
    counted: tuple[Run, ...]
    scores: Mapping[str, Mean]
    finished: int
    repetitions: int

    @property
    def folds(self) -> int:
        """How many different folds count; 0 where there are not several."""
        folds = len({run.fold for run in self.counted})
        return folds if folds > 1 else 0

    @property
    def whole(self) -> bool:
        """Whether every repetition has finished."""
        return self.finished == self.repetitions

    @property
    def state(self) -> str:
        """How its runs ended; empty where all have finished."""
        states = Counter(f"{run.status} ({run.cause})" if run.cause else run.status for run in self.runs)
        if set(states) == {"finished"}:
            return ""
        if len(self.runs) == 1:
            return next(iter(states))
        ordered = sorted(states.items(), key=lambda item: (item[0] != "finished", item[0]))
        return ", ".join(f"{count} {state}" for state, count in ordered)

    @property
    def seconds(self) -> float | None:
        """Mean time of its runs that have finished."""
        return statistics.fmean(run.seconds for run in self.counted) if self.finished else None

    @cached_property
    def label(self) -> str:
        """What it has of its own, on one line."""
        return in_one_line(self.values) or (self.runs[0].path.name if len(self.runs) == 1 else "all")

    @property
    def words(self) -> str:
        """Its values alone: for a legend, where there is no room for keys."""
        return ", ".join(in_short(self.values).values()) or self.label

    def best(self, metric: str, direction: str) -> Run | None:
        """Its best finished run; None where none has a score."""
        sign = -1 if direction.startswith("max") else 1
        scores = [(run.score(metric), run) for run in self.counted if self.finished]
        scored = [(sign * score, run) for score, run in scores if score is not None and math.isfinite(score)]
        return min(scored, key=lambda one: one[0])[1] if scored else None


def row_of(runs: Sequence[Run], values: Mapping[str, str | None], metrics: Iterable[str]) -> Row:
    """Put runs together; of each seed the last one counts, but one that has finished before any other."""
    by_job: dict[str | Path, Run] = {}
    for run in runs:
        job = run.fingerprint or run.path
        before = by_job.get(job)
        if before is None or run.status == "finished" or before.status != "finished":
            by_job[job] = run
    finished = [run for run in by_job.values() if run.status == "finished"]
    counted = finished or list(by_job.values())
    folds = [run.fold for run in counted]
    means = {metric: mean_of((run.score(metric) for run in counted), folds) for metric in metrics}
    scores = {metric: mean for metric, mean in means.items() if mean is not None}
    return Row(values, tuple(runs), tuple(counted), scores, len(finished), len(by_job))


def rank(rows: Iterable[Row], metric: str, direction: str) -> list[Row]:
    """From the best to the worst; those with a run that has not finished come after, then those without."""
    sign = -1 if direction.startswith("max") else 1

    def order(row: Row) -> tuple[bool, bool, bool, float]:
        score = row.scores.get(metric)
        return not row.finished, not row.whole, score is None, sign * score.mean if score else 0.0

    return sorted(rows, key=order)


def run_of(job: JobRecord, run_dir: Path) -> Run:
    """A job as its journal has it."""
    outcome = job.outcome or Outcome("interrupted")
    return Run(
        run_dir,
        job.status,
        outcome.cause,
        outcome.reason,
        seconds=outcome.seconds,
        seed=job.seed,
        fingerprint=job.fingerprint,
        typed=typed_values(job.overrides),
        metrics=outcome.metrics,
        best=outcome.best,
        warnings=tuple(outcome.warnings),
        fold=job.fold,
    )


def job_rows(
    jobs: Sequence[JobRecord],
    metrics: Iterable[str],
    run_dir: Callable[[JobRecord], Path] = lambda job: Path(str(job.number)),
) -> list[Row]:
    """Jobs that differ in seed and fold alone are one row."""
    metrics = list(metrics)
    together: dict[tuple[tuple[str, str], ...], list[Run]] = {}
    for job, typed in zip(jobs, varying(jobs), strict=True):
        values = tuple((key, value) for key, value in typed.items() if key not in REPETITIONS)
        together.setdefault(values, []).append(run_of(job, run_dir(job)))
    return [row_of(runs, dict(values), metrics) for values, runs in together.items()]


def best_job(records: Sequence[JobRecord], aim: Objective) -> JobRecord | None:
    """The best job of the best row; None where no job has a score."""
    by_path = {Path(str(record.number)): record for record in records}
    rows = rank(job_rows(records, [aim.name]), aim.name, aim.direction)
    best = next(filter(None, (row.best(aim.name, aim.direction) for row in rows)), None)
    return by_path[best.path] if best is not None else None


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
    first = ["job", *sorted(typed, key=lambda key: key in REPETITIONS), "status", "cause"]
    scores = {key: None for row in rows for key in row if key not in first}
    filled = {key for row in rows for key, value in row.items() if value != ""}
    columns = [*first, *sorted(scores, key=lambda name: (not name.startswith("best "), name))]
    return _csv_of([name for name in columns if name in filled], rows)


def groups_csv(jobs: Sequence[JobRecord], objectives: Sequence[Objective]) -> str:
    """One row per configuration: its values, how many jobs finished, and the mean of every score."""
    logged = {name for job in jobs if job.outcome is not None for name in job.outcome.metrics}
    metrics = list(dict.fromkeys([*(aim.name for aim in objectives), *sorted(logged)]))
    rows = []
    for group in job_rows(jobs, metrics):
        row: dict[str, Any] = {**group.values, "finished": group.finished, "of": len(group.runs)}
        for name in metrics:
            score = group.scores.get(name) if group.finished else None
            row |= {f"{name} {what}": getattr(score, what, None) for what in _STATISTICS}
            row[f"{name} n"] = score.n if score else 0
        rows.append(row)
    return _csv_of(list(dict.fromkeys(key for row in rows for key in row)), rows)


def _csv_of(columns: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> str:
    return csv_text(columns, ([row.get(name) for name in columns] for row in rows))


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
