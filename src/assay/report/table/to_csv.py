"""A comparison as CSV: every digit of every number, for spreadsheets and programs."""

from __future__ import annotations

import csv
import io
from typing import TYPE_CHECKING, Any

from assay.quoting import spreadsheet_cell
from assay.terminal import printable

if TYPE_CHECKING:
    from assay.report.table.comparison import Comparison


def to_csv(comparison: Comparison) -> str:
    """Rows of a comparison, and below them the runs that cannot be read.

    Returns:
        Columns: the keys that differ; of each metric its mean under its name, `METRIC std`, `METRIC low` and
        `METRIC high` (95 % interval), `METRIC n`; `repetitions`, `status`, `best` (1 for the best row),
        `runs` (their directories, separated by line feeds).
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    ends = ("", " std", " low", " high", " n")
    names = [f"{name}{end}" for name in comparison.metrics for end in ends]
    writer.writerow(
        [_cell(one) for one in (*comparison.columns, *names, "repetitions", "status", "best", "runs")]
    )
    for number, row in enumerate(comparison.rows):
        cells: list[Any] = [row.values.get(key) for key in comparison.columns]
        for name in comparison.metrics:
            score = row.scores.get(name)
            one = (
                (None,) * 4 + (0,)
                if score is None
                else (score.mean, score.std, score.low, score.high, score.n)
            )
            cells += one
        cells += [row.repetitions, row.state or "finished", int(number == comparison.best)]
        writer.writerow([_cell(one) for one in (*cells, "\n".join(str(run.path) for run in row.runs))])
    empty = [None] * (len(comparison.columns) + len(names))
    for run in comparison.broken:
        writer.writerow([_cell(one) for one in (*empty, None, f"broken: {run.reason}", 0, str(run.path))])
    return text.getvalue()


def _cell(value: Any) -> str:
    if value is None:
        return ""
    return printable(spreadsheet_cell(value)) if isinstance(value, str) else repr(value)
