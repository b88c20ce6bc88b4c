"""Columns of a table as one tensor of floats."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, Self, final

import numpy as np
import pandas as pd
import torch

from assay.data.tabular.column_kind import is_number
from assay.errors import DataError
from assay.quoting import override

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray
    from torch import Tensor

_DAY = np.timedelta64(1, "D")


@final
@dataclass(frozen=True)
class Column:
    """How one column becomes numbers.

    Attributes:
        name: Of the column.
        kind: `number`, `date` (days since 1970), `category`, or `text` of a `TextEncoder`.
        fill: What stands for a missing value; None: there must be none.
        codes: Of categories: which of the column's positions is 1; those that share one were rare.
        other: Position of a category that training lacks; None: none of them is 1.
    """

    name: str
    kind: str
    fill: float | str | None = None
    codes: Mapping[str, int] = field(default_factory=dict)
    other: int | None = None

    @property
    def width(self) -> int:
        """How many numbers it becomes."""
        return max(self.codes.values(), default=0) + 1 if self.kind == "category" else 1


class ColumnEncoder(Protocol):
    """Of a table or of texts, as far as reading a file needs it."""

    columns: tuple[Column, ...]

    def check_columns(self, names: Sequence[str]) -> None:
        """Refuse a table that lacks a column.

        Args:
            names: Of its columns.
        """


@final
class TableEncoder:
    """Numbers as they are, categories as one column each; see `assay.data.table.Table`.

    Fitted on the training rows. A category that training lacks counts with the rarest ones, or as none of
    them. What is learned is plain data (`as_plain`), so that it can be kept and applied to new rows.

    Args:
        impute: Fill in missing values (with the median, or the most frequent category); otherwise there must
            be none.
        max_categories: Columns a categorical column may become; None for any number.

    Attributes:
        columns: What was learned of each.
        csv: `separator` and `decimal` of the training table, where it is a CSV file.
    """

    def __init__(self, impute: bool = False, max_categories: int | None = None) -> None:
        self._impute, self._max_categories = impute, max_categories
        self.columns: tuple[Column, ...] = ()
        self.csv: dict[str, str] = {}

    def fit(self, raw: pd.DataFrame, rows: NDArray[np.int64]) -> None:
        """Learn the categories, and the values to fill in.

        Args:
            raw: The table.
            rows: Those of the training part.

        Raises:
            DataError: A column is neither numbers, nor dates, nor categories.
        """
        kinds = {str(name): _kind(raw[name]) for name in raw.columns}
        training = raw.iloc[rows]
        self.columns = tuple(self._learn(name, kind, training[name]) for name, kind in kinds.items())

    def _learn(self, name: str, kind: str, column: pd.Series[Any]) -> Column:
        if kind != "category":
            numbers = _numbers(column, kind)
            known = numbers[~np.isnan(numbers)]
            fill = float(np.median(known)) if len(known) else 0.0
            return Column(name, kind, fill if self._impute else None)
        # By their number, and of equally many by their name.
        counts = (
            category_texts(column).value_counts().sort_index().sort_values(ascending=False, kind="stable")
        )
        most = str(counts.index[0]) if len(counts) else ""
        names = [str(text) for text in counts.index]
        limit = self._max_categories or len(names)
        frequent = sorted(names if len(names) <= limit else names[: limit - 1])
        codes = {text: frequent.index(text) if text in frequent else len(frequent) for text in sorted(names)}
        other = None if len(frequent) == len(names) else len(frequent)
        return Column(name, kind, most if self._impute else None, codes, other)

    def transform(self, raw: pd.DataFrame) -> Tensor:
        """Float32 `[N, F]`: numbers and dates in the table's order, then the categories of each column.

        Args:
            raw: A table that has the columns of the training table; others are not looked at.

        Raises:
            DataError: A column is missing, lacks a value, or held numbers in training and holds something
                else.
        """
        if not self.columns:
            raise RuntimeError("fit() comes first")
        self.check_columns([str(name) for name in raw.columns])
        numbers = [_filled(raw[one.name], one) for one in self.columns if one.kind != "category"]
        one_hot = [_one_hot(raw[one.name], one) for one in self.columns if one.kind == "category"]
        if not len(raw):
            return torch.zeros(0, sum(column.width for column in self.columns))
        with np.errstate(over="ignore"):
            values = np.column_stack([*numbers, *one_hot]).astype(np.float32)
        return torch.from_numpy(np.ascontiguousarray(values))

    def check_columns(self, names: Sequence[str]) -> None:
        """Refuse a table that lacks a column.

        Args:
            names: Of its columns.

        Raises:
            DataError: Naming those that it lacks, or one that it has twice.
        """
        check_columns(self.columns, names)

    def unknown(self, raw: pd.DataFrame) -> list[str]:
        """Sentences on categories that the training rows lack, one a column.

        Args:
            raw: As for `transform`, which has taken it.
        """
        told = []
        for column in self.columns:
            if column.kind != "category":
                continue
            texts = category_texts(raw[column.name])
            if len(strange := texts[~texts.isin(list(column.codes))]):
                counts = "with the rarest ones" if column.other is not None else "as none of the known ones"
                told.append(
                    f"{len(strange):,} of {len(raw):,} rows have a {column.name!r} that no training row has, "
                    f"such as {str(strange.iloc[0])[:40]!r}: it counts {counts}"
                )
        return told

    def as_plain(self) -> dict[str, Any]:
        """What was learned, as containers of text and numbers."""
        return {"columns": [asdict(column) for column in self.columns], "csv": self.csv}

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> Self:
        """An encoder that has learned already.

        Args:
            plain: From `as_plain`, perhaps of an earlier version or written by somebody else.

        Raises:
            ValueError: It is something else.
        """
        encoder = cls()
        try:
            encoder.columns = tuple(_checked(Column(**column)) for column in plain["columns"])
            encoder.csv = {key: str(plain["csv"][key]) for key in plain.get("csv", ())}
        except (TypeError, KeyError) as error:
            raise ValueError(f"not what a table's encoder has learned: {error}") from error
        if not encoder.columns:
            raise ValueError("not what a table's encoder has learned: no column")
        return encoder


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


def _checked(column: Column) -> Column:
    """Refuse what `as_plain` does not give."""
    codes = list(column.codes.values()) if isinstance(column.codes, dict) else [None]
    numbers = all(isinstance(code, int) and 0 <= code < len(codes) for code in codes)
    text = all(isinstance(value, str) for value in (column.name, column.kind, *column.codes))
    fill = str if column.kind == "category" else float
    if (
        not (numbers and text)
        or column.kind not in ("number", "date", "category")
        or not (column.fill is None or isinstance(column.fill, fill))
        or not (column.other is None or column.other in codes)
    ):
        raise ValueError(f"not what a table's encoder has learned: column {column.name!r:.40}")
    return column


def _kind(column: pd.Series[Any]) -> str:
    if pd.api.types.is_complex_dtype(column):
        raise DataError(
            f"data: the column {column.name!r} holds complex numbers", hint="split it into two columns"
        )
    if pd.api.types.is_datetime64_any_dtype(column):
        return "date"
    if pd.api.types.is_timedelta64_dtype(column) or isinstance(column.dtype, pd.PeriodDtype):
        raise DataError(
            f"data: the column {column.name!r} holds {column.dtype}, neither numbers nor categories",
            hint="turn it into numbers, or leave it out: "
            + override("data.source.exclude", [str(column.name)]),
        )
    return "number" if is_number(column) else "category"


def _numbers(column: pd.Series[Any], kind: str) -> NDArray[np.float64]:
    """Float64, NaN where a value is missing or infinite."""
    if kind == "date":
        try:
            days = pd.to_datetime(column, utc=True).dt.tz_localize(None).to_numpy()
        except (TypeError, ValueError) as error:
            raise DataError(f"data: the column {column.name!r} must hold dates: {error}") from error
        found = (days - np.datetime64("1970-01-01")) / _DAY
        return np.asarray(found, dtype=np.float64)
    if not is_number(column):
        raise DataError(
            f"data: the column {column.name!r} holds numbers in the training table, and something else here",
            hint="clean the column, or train without it: "
            + override("data.source.exclude", [str(column.name)]),
        )
    values: NDArray[np.float64] = column.to_numpy(dtype=np.float64, na_value=np.nan)
    return np.where(np.isinf(values), np.nan, values)


def category_texts(column: pd.Series[Any]) -> pd.Series[Any]:
    """Categories as text; 1.0 is 1, for a column of integers with a gap is one of floats.

    Args:
        column: Of categories; those that are missing are left out.
    """
    if isinstance(column.dtype, pd.StringDtype):
        return column.dropna().astype(object)
    return column.dropna().map(
        lambda value: str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)
    )


def _filled(column: pd.Series[Any], learned: Column) -> NDArray[np.float64]:
    numbers = _numbers(column, learned.kind)
    missing = np.isnan(numbers)
    if missing.any():
        _check_fill(learned, missing)
        numbers[missing] = learned.fill
    return numbers


def _one_hot(column: pd.Series[Any], learned: Column) -> NDArray[np.float32]:
    texts = category_texts(column).reindex(column.index)
    missing = texts.isna().to_numpy()
    if missing.any():
        _check_fill(learned, missing)
        texts = texts.where(~missing, learned.fill)
    unknown = -1 if learned.other is None else learned.other
    codes = texts.map(learned.codes).fillna(unknown).to_numpy(dtype=np.int64)
    columns = np.arange(learned.width)
    hot: NDArray[np.float32] = (codes[:, None] == columns).astype(np.float32)
    return hot


def _check_fill(learned: Column, missing: NDArray[np.bool_]) -> None:
    if learned.fill is None:
        raise DataError(
            f"data: the column {learned.name!r} has no finite value in row {int(missing.argmax())} (rows "
            "count from 0), and the encoder knows none to fill in",
            hint="fill it in, leave such rows out, or train with data.source.missing=impute",
        )
