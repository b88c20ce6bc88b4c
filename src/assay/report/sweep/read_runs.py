"""Any runs as the contents of a page: what they differ in is asked of their configs."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from assay.errors import AssayError
from assay.record.objective import Objective
from assay.record.outcome import Outcome
from assay.record.run_record import RunRecord
from assay.record.runs.read_runs import read_runs as read
from assay.report.sweep.contents import Contents, Job, spans_of
from assay.report.table.comparison import compare

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from assay.record.runs.run import Run
    from assay.report.sweep.contents import Span


def read_runs(paths: Sequence[Path]) -> Contents:
    """Read all runs in some folders.

    Args:
        paths: Run directories, sweeps, or folders above them.

    Raises:
        AssayError: A folder is not there, or holds no run.
    """
    runs = read(paths)
    comparison = compare(runs)
    ranking = comparison.ranking
    root = _above(runs)
    jobs = []
    for number, row in enumerate(comparison.rows):
        done = {run.fingerprint for run in row.counted}
        # What was run again counts by the last one that has finished, as the comparison's notes say.
        kept = [run for run in row.runs if run in row.counted or run.fingerprint not in done]
        values = {key: value for key, value in row.values.items() if value is not None}
        jobs += [replace(_job(run, root, values), configuration=str(number)) for run in kept]
    jobs += [replace(_job(run, root, {}), configuration=str(run.path)) for run in comparison.broken]
    aim = Objective("val/loss", "minimize")  # where no run has a score yet
    if ranking is not None:
        aim = Objective(ranking.metric, "minimize" if ranking.direction == "min" else "maximize")
    return Contents(
        paths[0].resolve().name if len(paths) == 1 else f"{len(jobs)} runs",
        ", ".join(map(str, paths)),
        tuple(jobs),
        (aim,),
        tuple(f"{key}={value}" for key, value in comparison.shared.items()),
        notices=tuple(f"{note[:1].upper()}{note[1:]}." for note in comparison.notes),
        is_sweep=False,
        decides=ranking is None or ranking.decides,
    )


def _job(run: Run, root: Path, values: Mapping[str, str]) -> Job:
    status = run.status
    best: dict[str, Any] = dict(run.best)
    outcome = Outcome(
        "failed" if status in ("broken", "running") else cast("Any", status),
        run.cause,
        run.reason,
        metrics=dict(run.metrics),
        best=best,
        seconds=run.seconds,
        warnings=list(run.warnings),
    )
    return Job(
        os.path.relpath(run.path, root) if run.path != root else run.path.name,
        values,
        "" if status == "broken" else str(run.seed),
        status,
        outcome,
        run.path,
        spans=_spans(run),
        fold=run.fold,
    )


def _spans(run: Run) -> tuple[Span, ...]:
    try:
        return spans_of(RunRecord.load(run.path), is_alive=run.status == "running")
    except AssayError:  # a broken one, which says so itself
        return ()


def _above(runs: Sequence[Run]) -> Path:
    """The folder that holds them all."""
    return Path(os.path.commonpath([run.path.absolute().parent for run in runs]))
