"""The first rows of predictions on a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich.table import Table
from rich.text import Text

from assay.quoting import number_text
from assay.terminal import printable

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_EACH = ("probability ", "score ")
"""Beginnings of the columns that there is one of for each class."""
_MOST = 12


def as_table(columns: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> Table:
    """A table of what matters most: no column in which nothing stands, and not one of each class.

    Args:
        columns: Of the predictions.
        rows: To show.
    """
    filled = [name for name in columns if any(row[name] is not None for row in rows)]
    if any(word.strip() in columns for word in _EACH):
        filled = [name for name in filled if not name.startswith(_EACH)]
    shown = filled if len(filled) <= _MOST else [*filled[: _MOST - 1], *filled[-1:]]
    table = Table(box=None, pad_edge=False)
    for name in shown:
        number = any(isinstance(row[name], float) for row in rows)
        table.add_column(Text(printable(name)), justify="right" if number else "left", overflow="fold")
    for row in rows:
        table.add_row(*(Text(printable(_cell(row[name]))) for name in shown))
    return table


def _cell(value: Any) -> str:
    if value is None:
        return ""
    return number_text(value) if isinstance(value, float) else str(value)
