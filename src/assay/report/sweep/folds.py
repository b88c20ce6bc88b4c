"""The folds of the best configuration, and every configuration's score over the samples of all folds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from assay.record.out_of_fold import FoldRun, gathered, mean_scores, tested_values
from assay.record.runs.statistics import mean_of
from assay.record.runs.varying import INNER_FOLDS, in_short
from assay.record.score_text import format_score, score_text
from assay.report.page.page import Cell, Note, Table
from assay.targets.own_task import import_trusted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from assay.record.out_of_fold import OutOfFold
    from assay.report.page.page import Block
    from assay.report.sweep.contents import Contents, Job
    from assay.report.sweep.groups import Group

FOLDS: Final = (
    "Each sample is tested once, by the run that has not trained on it. The interval is over the folds "
    "(Student's t), seeds of a fold averaged; folds share training samples, so it is rather too narrow. "
    "Scores out of fold are of all samples at once."
)


def fold_blocks(contents: Contents, groups: Sequence[Group]) -> list[Block]:
    """Tables of folds; nothing where no job has one."""
    runs = [
        FoldRun(job.name, values, job.seed, job.fold, job.run_dir)
        for job in contents.jobs
        if job.fold is not None and job.status == "finished" and job.run_dir is not None
        if (values := tested_values(job.values)) is not None
    ]
    if not runs:
        return []
    names = {run.name for run in runs}
    best = next(group for group in groups if any(job.name in names for job in group.jobs))
    nested = [job for job in contents.jobs if job.name in names and INNER_FOLDS in job.values]
    together: dict[tuple[tuple[str, str], ...], list[OutOfFold]] = {}
    every = gathered(runs)
    import_trusted(one.predictions.task for one in every)
    for one in every:
        together.setdefault(tuple(one.values.items()), []).append(one)
    blocks: list[Block] = [
        _folds(nested or best.jobs, "" if nested else best.label),
        _scores(list(together.values()), contents.keys, is_sweep=contents.is_sweep),
    ]
    problems = dict.fromkeys(
        f"{_label(one)}{problem}"
        for several in together.values()
        for one in several
        for problem in one.problems
    )
    return [*[Note(f"{problem[:1].upper()}{problem[1:]}.", "warn") for problem in problems], *blocks]


def _folds(tested: Sequence[Job], label: str) -> Table:
    of_fold: dict[int, list[Job]] = {}
    for job in tested:
        if job.fold is not None and job.status == "finished":
            of_fold.setdefault(job.fold, []).append(job)
    names = dict.fromkeys(name for jobs in of_fold.values() for job in jobs for name in job.tested)
    rows: list[list[Cell | str]] = []
    for fold, jobs in sorted(of_fold.items()):
        means = [mean_of(job.tested.get(name) for job in jobs) for name in names]
        cells = [
            Cell("" if mean is None else format_score(name, mean.mean), None if mean is None else mean.mean)
            for name, mean in zip(names, means, strict=True)
        ]
        chosen = dict.fromkeys(_chosen(job) for job in jobs)
        own = [] if label else [", ".join(chosen)]
        rows.append([Cell(str(fold), fold), ", ".join(job.name for job in jobs), *own, *cells])
    every = [(fold, job) for fold, jobs in sorted(of_fold.items()) for job in jobs]
    whole = [
        mean_of([job.tested.get(name) for _, job in every], [fold for fold, _ in every]) for name in names
    ]
    scores = ["" if mean is None else score_text(name, mean) for name, mean in zip(names, whole, strict=True)]
    rows.append([Cell("mean"), f"{len(of_fold)} folds", *([] if label else [""]), *scores])
    title = f"The best configuration: {label}" if label else "What the inner folds of each fold have chosen"
    head = ["fold", "run", *([] if label else ["chosen"]), *names]
    return Table(head, rows, numeric=frozenset(names), title=title)


def _scores(found: Sequence[Sequence[OutOfFold]], keys: Sequence[str], *, is_sweep: bool) -> Table:
    scores = [mean_scores(several) for several in found]
    names = dict.fromkeys(name for own in scores for name in own)
    rows: list[list[Cell | str]] = []
    for several, own in zip(found, scores, strict=True):
        short = in_short(several[0].values)
        cells = [
            Cell(format_score(name, own[name]), own[name]) if name in own else Cell("") for name in names
        ]
        samples = len(several[0].predictions.keys)
        rows.append([*(short.get(key, "") for key in keys), Cell(f"{samples:,}", samples), *cells])
    return Table(
        [*keys, "samples", *names],
        rows,
        numeric=frozenset(("samples", *names)),
        caption="Each prediction is in out_of_fold.parquet." if is_sweep else "",
        title="Out of fold",
    )


def _chosen(job: Job) -> str:
    values = in_short({key: value for key, value in job.values.items() if key != INNER_FOLDS})
    return " ".join(f"{key}={value}" for key, value in values.items()) or "as typed"


def _label(one: OutOfFold) -> str:
    short = " ".join(f"{key}={value}" for key, value in in_short(one.values).items())
    return f"{short}: " if short else ""
