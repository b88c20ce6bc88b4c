"""How a column of a table becomes numbers, as it was learned from the training rows."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, final

import numpy as np
import pandas as pd

from assay.data.tabular import dates
from assay.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

MOST_BUCKETS = 1 << 16


@final
@dataclass(frozen=True)
class Column:
    """How one column becomes numbers.

    Attributes:
        name: Of the column.
        kind: `number`, `date`, `category`, `words` (hashed), or `text` of a `TextEncoder`.
        fill: What stands for a missing value, of a date in days since 1970; None: there must be none.
        codes: Of categories: which of the column's positions is 1; those that share one were rare.
        other: Position of a category that training lacks; None: none of them is 1.
        parts: Of a date, those of `assay.data.tabular.dates.PARTS` that vary; none: days since 1970.
        start: Of a date: from when `elapsed` counts, in days since 1970.
        form: Of a date: how it is written.
        buckets: Of a text: how many numbers its words are hashed to.
        gaps: Whether training rows lacked values, so that a missing one is nothing new.
        span: Smallest and largest training value, of a date in days since 1970; None: not known.
    """

    name: str
    kind: str
    fill: float | str | None = None
    codes: Mapping[str, int] = field(default_factory=dict)
    other: int | None = None
    parts: tuple[str, ...] = ()
    start: float = 0.0
    form: str = dates.ISO
    buckets: int = 0
    gaps: bool = True
    span: tuple[float, float] | None = None

    @property
    def width(self) -> int:
        """How many numbers it becomes."""
        if self.kind == "category":
            return max(self.codes.values(), default=0) + 1
        return self.buckets if self.kind == "words" else len(self.parts) or 1

    @property
    def names(self) -> list[str]:
        """What each of these numbers is called."""
        if self.kind == "category":
            texts = {code: text for text, code in self.codes.items() if code != self.other}
            return [f"{self.name}={texts.get(code, 'other')}" for code in range(self.width)]
        if self.kind == "words":
            return [f"{self.name}, words {bucket}" for bucket in range(self.width)]
        return [f"{self.name}, {part}" for part in self.parts] or [self.name]

    @property
    def fills(self) -> tuple[float, ...]:
        """What stands for a missing number or date, a value for each of its numbers; NaN: nothing does."""
        fill = np.array([np.nan if self.fill is None else float(self.fill)])
        return tuple(dates.parts_of(fill, self.parts, self.start)[0].tolist())

    def far_off(self, column: pd.Series[Any]) -> NDArray[np.bool_]:
        """Where numbers or dates lie outside of those of training by more than these differ.

        Args:
            column: In the type that training has it in.
        """
        if self.span is None:
            return np.zeros(len(column), dtype=bool)
        if column.dtype.kind == "M":
            numbers = dates.days_since_1970(column)
        else:
            numbers = pd.to_numeric(column, errors="coerce").to_numpy(np.float64, na_value=np.nan)
        low, high = self.span
        far: NDArray[np.bool_] = (numbers < 2 * low - high) | (numbers > 2 * high - low)
        return far & np.isfinite(numbers)

    @property
    def span_text(self) -> str:
        """How messages write the span."""
        ends = self.span or ()
        of_date = self.kind == "date"
        return " to ".join(
            str(np.datetime64(int(end // 1), "D")) if of_date else f"{end:.6g}" for end in ends
        )


class ColumnEncoder(Protocol):
    """Of a table or of texts, as far as reading a file needs it."""

    columns: tuple[Column, ...]

    def check_columns(self, names: Sequence[str]) -> None:
        """Refuse a table that lacks a column."""


def check_columns(columns: Sequence[Column], names: Sequence[str]) -> None:
    """Refuse a table that lacks a column.

    Args:
        columns: As an encoder has learned them.
        names: Of the table's columns.

    Raises:
        DataError: Naming those that it lacks, or one that it has twice.
    """
    if missing := [column.name for column in columns if column.name not in names]:
        named = f"column{'s' if len(missing) > 1 else ''} {', '.join(map(repr, missing))}"
        raise DataError(
            f"data: the table has no {named}, which the model was trained on",
            hint=f"columns: {', '.join(column.name for column in columns)}",
        )
    if len(set(names)) < len(names):
        for column in columns:
            if names.count(column.name) > 1:
                raise DataError(
                    f"data: the table has two columns called {column.name!r}", hint="rename one of them"
                )


def checked(column: Column) -> Column:
    """Refuse what an encoder does not learn.

    Args:
        column: As somebody wrote it.

    Raises:
        ValueError: One of its values is of another type or out of range.
    """
    codes = list(column.codes.values()) if isinstance(column.codes, dict) else [None]
    numbers = all(isinstance(code, int) and 0 <= code < len(codes) for code in codes)
    text = all(isinstance(value, str) for value in (column.name, column.kind, *column.codes))
    fill = str if column.kind in ("category", "words") else float
    of_text = isinstance(column.buckets, int) and 0 <= column.buckets <= MOST_BUCKETS
    of_date = isinstance(column.start, float) and isinstance(column.form, str)
    of_span = column.span is None or (len(column.span) == 2 and {float} == set(map(type, column.span)))
    if (
        not (numbers and text and of_text and of_date and of_span)
        or column.kind not in ("number", "date", "category", "words")
        or (column.kind == "words") != (column.buckets > 0)
        or not set(column.parts) <= set(dates.PARTS)
        or not (column.fill is None or isinstance(column.fill, fill))
        or not (column.other is None or column.other in codes)
    ):
        raise ValueError(f"not what a table's encoder has learned: column {column.name!r:.40}")
    return column
