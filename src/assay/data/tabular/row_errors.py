"""Rows of a new table that cannot be encoded, each with its reason; the others in the types of training."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, final

import numpy as np
import pandas as pd

from assay.data.tabular import dates
from assay.data.tabular.column_kind import is_number
from assay.data.tabular.table_encoder import category_texts, distinct_texts

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from assay.data.tabular.table_encoder import Column

_LARGEST = float(np.finfo(np.float32).max)
_TRUTH = {"True": 1.0, "TRUE": 1.0, "true": 1.0, "False": 0.0, "FALSE": 0.0, "false": 0.0}
_SHOWN = 40


@final
@dataclass(frozen=True)
class JudgedRows:
    """A table whose every row is judged.

    Attributes:
        frame: The columns that are predicted from; numbers and dates where training had them.
        errors: Why a row cannot be encoded, by its position.
        warnings: What is odd about a row that can be, by its position.
    """

    frame: pd.DataFrame
    errors: dict[int, str] = field(default_factory=dict)
    warnings: dict[int, str] = field(default_factory=dict)


def judge_rows(frame: pd.DataFrame, columns: Sequence[Column], *, decimal: str = ".") -> JudgedRows:
    """Tell the rows that an encoder takes from those that it would refuse.

    Args:
        frame: Has all of the columns.
        columns: As the encoder has learned them.
        decimal: Decimal point of numbers that are text.
    """
    judged = JudgedRows(pd.DataFrame(index=range(len(frame))))
    for learned in columns:
        column = frame[learned.name].reset_index(drop=True)
        if learned.kind == "text":
            values, missing = column, blank_texts(column)
            foreign = ~missing & column.astype(str).str.contains("\ufffd", regex=False).to_numpy(dtype=bool)
            _note(
                judged.warnings,
                foreign,
                column,
                "is {}, which is not all text in UTF-8 (--encoding names another)",
            )
        elif learned.kind in ("category", "words"):
            values, missing = column, column.isna().to_numpy()
            if learned.kind == "category":
                _judge_categories(judged, learned, column)
        else:
            of_date = learned.kind == "date"
            values, bad = _dates(column, learned.form) if of_date else _numbers(column, decimal)
            what = f"a date such as {_example(learned.form)}" if of_date else "a number"
            _note(judged.errors, bad, column, f"is {{}}, not {what}")
            missing = values.isna().to_numpy() & ~bad
            far = learned.far_off(values)
            if learned.kind == "number":
                numbers = values.to_numpy()
                large = (np.abs(numbers) > _LARGEST) & (np.isfinite(numbers) | (learned.fill is None))
                _note(judged.errors, large, column, "is {}, which is too large")
                missing, far = missing | (np.isinf(numbers) & ~large), far & ~large
            _note(
                judged.warnings, far, column, f"is {{}}, far outside the training range, {learned.span_text}"
            )
        if learned.fill is None:
            what = "text" if learned.kind == "text" else "value"
            _note(judged.errors, missing, column, f"has no {what}")
        elif not learned.gaps:
            filled = "has no value, which each training row has: it is filled in"
            _note(judged.warnings, missing, column, filled)
        judged.frame[learned.name] = values
    return judged


def blank_texts(texts: pd.Series[Any]) -> NDArray[np.bool_]:
    """Which texts are missing, or are nothing but white space."""
    blank: NDArray[np.bool_] = (texts.isna() | ~texts.astype(str).str.contains(r"\S")).to_numpy(dtype=bool)
    return blank


def _judge_categories(judged: JudgedRows, learned: Column, column: pd.Series[Any]) -> None:
    places, distinct = distinct_texts(column)
    unknown = np.array([*(text not in learned.codes for text in distinct), False])[places]
    if not unknown.any():
        return
    texts = category_texts(column).reindex(column.index, fill_value="")
    foreign = unknown & texts.str.contains("\ufffd", regex=False).to_numpy()
    _note(judged.errors, foreign, column, "is {}, which is not text in UTF-8 (--encoding names another)")
    lines = unknown & texts.str.contains("\n", regex=False).to_numpy()
    _note(judged.errors, lines, column, "is {}: is a quote not closed there?")
    counts = "with the rarest ones" if learned.other is not None else "as none of the known ones"
    odd = unknown & ~foreign & ~lines
    _note(judged.warnings, odd, column, f"is {{}}, which no training row has: it counts {counts}")


def _note(noted: dict[int, str], wrong: NDArray[np.bool_], column: pd.Series[Any], sentence: str) -> None:
    for row in np.flatnonzero(wrong):
        message = f"{column.name!r} {sentence.format(repr(str(column.iloc[row])[:_SHOWN]))}"
        noted[int(row)] = f"{noted[int(row)]}; {message}" if int(row) in noted else message


def _numbers(column: pd.Series[Any], decimal: str) -> tuple[pd.Series[float], NDArray[np.bool_]]:
    """Float64, and where something else stands."""
    if is_number(column):
        values = pd.Series(column.to_numpy(dtype=np.float64, na_value=np.nan), dtype=np.float64)
        return values, np.zeros(len(column), dtype=bool)
    if column.dtype.kind in "mM" or isinstance(column.dtype, pd.PeriodDtype):
        return pd.Series(np.full(len(column), np.nan)), column.notna().to_numpy()
    texts = column.astype(object).where(column.notna(), None)
    as_text = texts.map(lambda value: _with_point(str(value).strip(), decimal), na_action="ignore")
    values = pd.to_numeric(as_text, errors="coerce").astype(np.float64)
    if values.isna().all():  # a column of yes and no in which another text stands, too
        values = as_text.map(_TRUTH).astype(np.float64)
    return values, (texts.notna() & values.isna()).to_numpy()


def _dates(column: pd.Series[Any], form: str) -> tuple[pd.Series[Any], NDArray[np.bool_]]:
    numeric = form in ("s", "ms", "%Y%m%d")
    # Numbers among texts are no dates, though 20240105 reads as one.
    numbers = column.map(lambda value: isinstance(value, int | float), na_action="ignore").eq(True)
    values = dates.as_dates(column if numeric or column.dtype.kind == "M" else column.mask(numbers), form)
    return values, (column.notna() & values.isna()).to_numpy()


def _example(form: str) -> str:
    last = datetime(2024, 12, 31, tzinfo=UTC)
    if form in ("s", "ms"):
        return str(int(last.timestamp()) * (1000 if form == "ms" else 1))
    return "2024-12-31" if form == dates.ISO else last.strftime(form)


def _with_point(text: str, decimal: str) -> str:
    """A number as pandas reads it; 1.234 is none where the decimal point is a comma."""
    return text if decimal == "." else text.replace(".", "?").replace(decimal, ".")
