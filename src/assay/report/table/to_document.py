"""A comparison as the JSON documents of `ls`, `compare` and `best`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, final

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from assay.record.runs.run import Run
    from assay.report.table.comparison import Comparison, Row


@final
@dataclass(frozen=True)
class Score:
    """A score of a row.

    Attributes:
        mean: Of the runs that have it.
        std: Standard deviation of them; null of one run.
        low: Lower end of the 95 % interval of the mean (Student's t); null of one run.
        high: Upper end.
        n: Runs that have it.
    """

    mean: float
    std: float | None
    low: float | None
    high: float | None
    n: int


@final
@dataclass(frozen=True)
class RunInRow:
    """A run of a row.

    Attributes:
        run: Its directory.
        status: `running`, `finished`, `failed`, `pruned` or `interrupted`.
        cause: Kind of the failure; empty where it did not fail.
        reason: How it ended, when not well.
        seed: Of the run.
        started: UTC, ISO 8601.
        seconds: It took.
    """

    run: Path
    status: str
    cause: str
    reason: str
    seed: int
    started: str
    seconds: float


@final
@dataclass(frozen=True)
class ComparedRow:
    """One configuration, or one run.

    Attributes:
        config: What differs, by key; null where it does not have the key.
        best: Whether it is the best row.
        finished: Runs that its scores are of.
        repetitions: Runs that differ in the seed or the fold alone.
        scores: By metric.
        runs: All of them.
    """

    config: Mapping[str, str | None]
    best: bool
    finished: int
    repetitions: int
    scores: Mapping[str, Score]
    runs: Sequence[RunInRow]


@final
@dataclass(frozen=True)
class Broken:
    """A run that cannot be read.

    Attributes:
        run: Its directory.
        reason: Why.
    """

    run: Path
    reason: str


@final
@dataclass(frozen=True)
class BestTest:
    """Whether the best row is ahead of the second by more than noise.

    Attributes:
        name: Of the test.
        p_value: Null where n is too small to say.
        verdict: In words; empty where there are no two rows to compare.
    """

    name: str
    p_value: float | None
    verdict: str


@final
@dataclass(frozen=True)
class Compared:
    """What differs between runs, and their scores.

    Attributes:
        metric: What rows are sorted by; null where by none.
        direction: `min` or `max`, which is better; null where nobody knows.
        columns: Keys that differ.
        metrics: Scores that are shown.
        shared: What all have and is not a default, by key.
        rows: Sorted, the best first where there is a metric.
        broken: Runs that cannot be read.
        test: Whether the best is ahead of the second.
        notes: What to know, a sentence each.
    """

    metric: str | None
    direction: str | None
    columns: Sequence[str]
    metrics: Sequence[str]
    shared: Mapping[str, str]
    rows: Sequence[ComparedRow]
    broken: Sequence[Broken]
    test: BestTest
    notes: Sequence[str]


@final
@dataclass(frozen=True)
class Best:
    """The best run.

    Attributes:
        run: Its directory.
        metric: By which.
        direction: `min` or `max`, which is better.
        row: Its row in a comparison.
    """

    run: Path
    metric: str
    direction: str
    row: ComparedRow


def to_document(comparison: Comparison) -> Compared:
    """Everything that a comparison says."""
    ranking = comparison.ranking
    return Compared(
        metric=ranking.metric if ranking else None,
        direction=ranking.direction or None if ranking else None,
        columns=comparison.columns,
        metrics=comparison.metrics,
        shared=comparison.shared,
        rows=[_row(row, best=number == comparison.best) for number, row in enumerate(comparison.rows)],
        broken=[Broken(run.path, run.reason) for run in comparison.broken],
        test=BestTest(*comparison.verdict),
        notes=comparison.notes,
    )


def _row(row: Row, *, best: bool) -> ComparedRow:
    return ComparedRow(
        config=row.values,
        best=best,
        finished=len(row.counted) if row.finished else 0,
        repetitions=row.repetitions,
        scores={name: Score(one.mean, one.std, one.low, one.high, one.n) for name, one in row.scores.items()},
        runs=[_run(run) for run in row.runs],
    )


def _run(run: Run) -> RunInRow:
    return RunInRow(run.path, run.status, run.cause, run.reason, run.seed, run.started, run.seconds)
