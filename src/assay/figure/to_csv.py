"""A figure's numbers as CSV, in full."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from assay.figure.figure import Bars, Heatmap, Line, ParallelCoordinates, Points
from assay.quoting import spreadsheet_frame
from assay.terminal import printable

if TYPE_CHECKING:
    import pandas

    from assay.figure.figure import Figure, Mark, Spans


def to_csv(figure: Figure) -> str:
    """Write what a figure draws as a table.

    Returns:
        A matrix has its row's name in the first column. Everything else is one row per point, with the
        column `series` where the figure has several; columns that no point fills are left out. Floats are
        written so that they read back equal.
    """
    import pandas

    tables = [_table(mark) for mark in figure.marks]
    if not tables:
        return "\n"
    table = pandas.concat(tables, ignore_index=True) if len(tables) > 1 else tables[0]
    if "series" in table and table["series"].nunique() == 1 and len(tables) == 1:
        table = table.drop(columns="series")
    return str(spreadsheet_frame(table).to_csv(index=False, lineterminator="\n"))


def _table(mark: Mark) -> pandas.DataFrame:
    import pandas

    if isinstance(mark, Heatmap):
        table = pandas.DataFrame(np.asarray(mark.values), columns=_texts(mark.x_names))
        table.insert(0, "", _texts(mark.y_names), allow_duplicates=True)
        return table
    if isinstance(mark, ParallelCoordinates):
        columns = ({"name": mark.texts} if mark.texts else {}) | dict(mark.columns)
    else:
        columns = {name: values for name, values in _columns(mark).items() if values is not None}
    return pandas.DataFrame({printable(name): _texts(values) for name, values in columns.items()})


def _texts(values: Any) -> Any:
    """Texts as pandas can hold them: no encoding can write a lone surrogate."""
    if isinstance(values, np.ndarray):
        return values
    return [printable(value) if isinstance(value, str) else value for value in values]


def _columns(mark: Line | Points | Bars | Spans) -> dict[str, Any]:
    if isinstance(mark, Line):
        return _series(mark.name, mark.x) | {"x": mark.x, "y": mark.y, "low": mark.low, "high": mark.high}
    if isinstance(mark, Points):
        return _series(mark.name, mark.x) | {"x": mark.x, "y": mark.y, "text": mark.texts or None}
    if isinstance(mark, Bars):
        columns = {"label": mark.labels, "value": mark.values, "low": mark.low, "high": mark.high}
        return _series(mark.name, mark.labels) | columns
    columns = {"row": mark.rows, "start": mark.starts, "end": mark.ends}
    return columns | {"text": mark.texts or None, "kind": mark.colours or None}


def _series(name: str, values: Any) -> dict[str, Any]:
    return {"series": [name] * len(values)}
