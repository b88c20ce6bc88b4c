"""The documents that `--json` prints where no room has a value of their shape."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, final

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from assay.check.report import Report
    from assay.compose.listing import Option
    from assay.sweep.summary import SweepResult

KINDS: Final[dict[str, tuple[str, str]]] = {
    "run": ("train, resume RUN", "assay.run.result.RunResult"),
    "sweep": ("train -m, resume SWEEP", "assay.cli.documents.Sweep"),
    "config": ("train --cfg", "assay.cli.documents.Composed"),
    "check": ("check", "assay.check.report.Report"),
    "check_sweep": ("check -m", "assay.cli.documents.Checked"),
    "data": ("data", "assay.report.survey.Survey"),
    "configs": ("configs", "assay.cli.documents.Configs"),
    "explain": ("explain", "assay.compose.explain.Explanation"),
    "diff": ("diff", "assay.report.difference.Difference"),
    "info": ("info", "assay.cli.documents.Machine"),
    "ls": ("ls", "assay.report.comparison_formats.Compared"),
    "compare": ("compare", "assay.report.comparison_formats.Compared"),
    "best": ("best", "assay.report.comparison_formats.Best"),
    "rm": ("rm", "assay.cli.documents.Removed"),
    "eval": ("eval", "assay.run.evaluate.Evaluation"),
    "report": ("report", "assay.report.report.Report"),
    "export": ("export", "assay.run.export.description.Exported"),
    "predict": ("predict", "assay.run.predict.predict.Predicted"),
    "reproduce": ("reproduce", "assay.run.reproduce.Reproduction"),
}
"""What prints each kind of document, and the class whose attributes are its fields; see docs/json.md."""


@final
@dataclass(frozen=True)
class Composed:
    """What would run, from `train --cfg`.

    Attributes:
        configs: One of a run, or those of the jobs that a sweep begins with; what only the data knows is
            still an interpolation.
    """

    configs: Sequence[Mapping[str, Any]]


@final
@dataclass(frozen=True)
class Checked:
    """A sweep that can run.

    Attributes:
        jobs: Those that it begins with, or that stand for all.
    """

    jobs: Sequence[Report]


@final
@dataclass(frozen=True)
class Configs:
    """What there is to choose from.

    Attributes:
        options: Sorted by group and name.
    """

    options: Sequence[Option]


@final
@dataclass(frozen=True)
class Machine:
    """What this machine has.

    Attributes:
        versions: Of Python and packages.
        cpu: Of the processor, in words.
        gpu: In words; `none` says why there is none.
        auto: What `device=auto` chooses, and why.
    """

    versions: Mapping[str, str]
    cpu: Mapping[str, str]
    gpu: Mapping[str, str]
    auto: Mapping[str, str]


@final
@dataclass(frozen=True)
class Removed:
    """What is gone.

    Attributes:
        runs: Directories of runs.
    """

    runs: Sequence[Path]


@final
@dataclass(frozen=True)
class SweepJob:
    """A job of a sweep.

    Attributes:
        number: Of the job.
        run_dir: Where it writes.
        status: `waiting`, `running`, `finished`, `failed`, `interrupted` or `pruned`.
        overrides: What stands for it in the sweep.
        seed: Of the run.
        attempts: Begun so far.
        metrics: Last value of each scalar.
        best: Monitored metric, its value and the epoch of the best checkpoint.
        seconds: It took.
        cause: Kind of the failure, such as `out_of_memory`; empty where it did not fail.
        reason: How it ended, when not well.
        warnings: What says that its model is of no use, although it has finished.
    """

    number: int
    run_dir: Path
    status: str
    overrides: Sequence[str]
    seed: int
    attempts: int
    metrics: Mapping[str, float]
    best: Mapping[str, Any]
    seconds: float
    cause: str
    reason: str
    warnings: Sequence[str]


@final
@dataclass(frozen=True)
class Sweep:
    """What a sweep has come to.

    Attributes:
        directory: Where everything about it lies; `results.csv` has the same as a table.
        total: Jobs that it asks for.
        objectives: `minimize` or `maximize` for each score; the first one decides.
        best: Number of the best job; null where none has a score.
        jobs: In order.
    """

    directory: Path
    total: int
    objectives: Mapping[str, str]
    best: int | None
    jobs: Sequence[SweepJob]

    @classmethod
    def of(cls, result: SweepResult) -> Sweep:
        """The document of a sweep."""
        from assay.record.outcome import Outcome
        from assay.sweep.summary import best_job

        jobs = []
        for job in result.jobs:
            outcome = job.outcome or Outcome("interrupted")
            jobs.append(
                SweepJob(
                    number=job.number,
                    run_dir=result.run_dir(job),
                    status=job.status,
                    overrides=(*job.overrides, *job.changes),
                    seed=job.seed,
                    attempts=job.attempts,
                    metrics=outcome.metrics,
                    best=outcome.best,
                    seconds=outcome.seconds,
                    cause=outcome.cause,
                    reason=outcome.reason,
                    warnings=outcome.warnings,
                )
            )
        best = best_job(result.jobs, result.objectives[0])
        objectives = {one.name: one.direction for one in result.objectives}
        return cls(result.directory, result.total, objectives, best.number if best else None, jobs)
