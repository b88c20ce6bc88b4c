"""The runs of a folder that are used as one model: the finished ones of its best configuration. No torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, final

from assay.errors import AssayError
from assay.quoting import command, join_first
from assay.record.run_record import FILE, RunRecord
from assay_analysis.comparison import compare
from assay_analysis.read_runs import read_runs

if TYPE_CHECKING:
    from pathlib import Path

    from assay_analysis.comparison import Comparison, Row
    from assay_analysis.run import Run


@final
@dataclass(frozen=True)
class Members:
    """Runs that differ in seed or fold alone, and what there is to know about their choice."""

    folder: Path
    row: Row
    run_dirs: tuple[Path, ...]
    notes: tuple[str, ...]


def find_members(folder: Path) -> Members | None:
    """The members of a folder of runs; None of a run, and of what is not a folder."""
    if not folder.exists():
        RunRecord.load(folder)  # says so
    if not folder.is_dir() or any((folder / name).exists() for name in ("config.yaml", FILE)):
        return None
    runs = read_runs([folder], lost=True)
    comparison = compare(runs)
    row = _best_row(folder, comparison)
    left_out = [run for run in row.runs if run not in row.counted and run.status != "finished"]
    notes = [f"{folder}: {_describe(run)}; left out" for run in (*left_out, *comparison.broken)]
    chosen = ""
    if len(comparison.rows) > 1 and comparison.ranking is not None:
        metric = comparison.ranking.metric
        chosen = f"; of {len(comparison.rows)} configurations the best by {metric}: {row.label}"
    paths = sorted((run.path for run in row.counted), key=lambda path: (len(path.name), path))
    names = join_first([path.relative_to(folder) for path in paths])
    about = f"the mean of {len(paths)} runs of {folder}: {names}{chosen}"
    return Members(folder, row, tuple(paths), (about, *notes))


def _best_row(folder: Path, comparison: Comparison) -> Row:
    """The best configuration, of which several runs have finished."""
    rows = comparison.rows
    if len(rows) > 1 and comparison.best is None:
        reason = "none has a score to choose by"
        if comparison.ranking is not None and comparison.ranking.notes:
            reason = comparison.ranking.notes[-1]
        raise AssayError(
            f"{folder} has {len(rows)} configurations, and it is not known which is the best: {reason}",
            hint="name one run, or a folder of runs that differ in seed or fold alone",
        )
    row = rows[comparison.best or 0] if rows else None
    if row is not None and row.finished > 1:
        return row
    ended = comparison.broken if row is None else row.runs
    raise AssayError(
        f"a mean needs several finished runs that differ in seed or fold alone; {folder} has: "
        f"{'; '.join(map(_describe, ended))}",
        hint=f"name a run; {command('ls', folder)} lists them",
    )


def _describe(run: Run) -> str:
    """How a run ended."""
    reason = f": {run.reason}" if run.reason else ""
    return f"run {run.path.name} {run.status}{reason}"
