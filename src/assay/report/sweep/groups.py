"""Jobs that differ in their seed alone, as one configuration with one score."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING, final

from assay.record.runs.statistics import mean_of
from assay.record.runs.varying import in_short
from assay.report.table.comparison import verdict_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from assay.record.objective import Objective
    from assay.record.runs.statistics import Mean
    from assay.report.sweep.contents import Contents, Job


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
        short = " ".join(f"{key}={value}" for key, value in in_short(self.values).items())
        return short or (self.jobs[0].name if len(self.jobs) == 1 else "all")

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
