"""Columns of a table as one tensor of floats; rows that cannot be encoded are named."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Literal, Self, final

import msgspec
import numpy as np
import torch
from pandas.api.types import is_datetime64_any_dtype

from assay.data.table.category import Category, Text
from assay.data.table.column import (
    check_trained_columns,
    describe_unusual,
    is_number,
    judge_rows,
)
from assay.data.table.date import ISO, Date
from assay.data.table.features import Features
from assay.data.table.number import Number, is_amount
from assay.errors import DataError
from assay.quoting import join_first

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor

    from assay.data.core.types import Frame, Rows, Values
    from assay.data.table.column import Column

_KINDS = {"number": Number, "date": Date, "category": Category, "ngrams": Text}


@final
class TableEncoder:
    """Numbers as they are, dates in parts, categories as codes; see `assay.data.table.table.Table`.

    Fitted on the training rows. A category that training lacks counts with the rarest ones, or its code is
    that of none of them, which is their number. What is learned is plain data (`as_plain`), so that it can be
    kept and applied to new rows.
    """

    vocab_size = 0

    def __init__(
        self,
        impute: bool = False,
        max_categories: int | None = None,
        features: Features | None = None,
    ) -> None:
        self._impute = impute
        self._max_categories = max_categories
        self._features = features or Features([])
        self.columns: tuple[Column, ...] = ()
        self.csv: dict[str, str] = {}
        self.target_forms: dict[str, str] = {}
        self.notes: tuple[str, ...] = ()

    def fit(self, raw: Frame, rows: Rows) -> None:
        """Learn the categories, and the values to fill in."""
        self.columns = tuple(
            self._learn(raw[name].iloc[rows].rename(str(name))) for name in raw.columns
        )
        mapped = [
            column.name for column in self.columns if isinstance(column, Number) and column.knots
        ]
        if mapped:
            self.notes = (
                f"numbers with a long tail are mapped by their quantiles to a normal distribution: "
                f"{join_first(mapped)}",
            )

    def _learn(self, cells: Values) -> Column:
        name = str(cells.name)
        if name in self._features.marks:
            return Category(name, "", bool(cells.isna().any()), codes={"": 0}, other=1)
        form = self._features.forms.get(name, "")
        if is_amount(form) or (not form and is_number(cells)):
            return Number.learn(cells, form, impute=self._impute)
        if form or is_datetime64_any_dtype(cells):
            return Date.learn(cells, form or ISO, impute=self._impute)
        text = None
        if name in self._features.ngrams:
            text = Text.learn(cells, impute=self._impute)
        return text or Category.learn(cells, self._max_categories, impute=self._impute)

    def transform(self, raw: Frame) -> Tensor:
        """Float32 `[N, F]`: numbers and dates in the table's order, their marks of gaps, then codes."""
        check_trained_columns(self.columns, [str(name) for name in raw.columns])
        judged = judge_rows(raw, self.columns)
        if judged.errors:
            row, error = min(judged.errors.items())
            fill = ""
            if "has no value" in error:
                fill = ", or fill gaps with data.source.missing=impute"
            raise DataError(
                f"data: row {raw.index[row]} (rows count from 0): {error}",
                hint=f"clean the column, or train without it{fill}",
            )
        return self.encode(judged.frame)

    def encode(self, judged: Frame) -> Tensor:
        """As `transform`, of rows that `judge_rows` has taken."""
        numbers, marked, categories = self._in_order()
        width = sum(column.width for column in numbers) + len(marked) + len(categories)
        # A column at a time is several times as fast to write where it lies together.
        filled = np.empty((width, len(judged)), dtype=np.float32)
        place = 0
        with np.errstate(over="ignore"):
            for column in numbers:
                filled[place : place + column.width] = column.encode(judged[column.name]).T
                place += column.width
        for column in marked:
            filled[place] = column.is_missing(judged[column.name])
            place += 1
        for column in categories:
            filled[place] = column.encode_codes(judged[column.name])
            place += 1
        return torch.from_numpy(filled).t().contiguous()

    @property
    def categories(self) -> tuple[int, ...]:
        """How many categories there are codes of, for each of the last columns."""
        return tuple(len(column.code_names) for column in self._in_order()[2])

    @property
    def feature_names(self) -> list[str]:
        """What each of the inputs is called, of a category each: its column, and which one or part it is."""
        numbers, marked, categories = self._in_order()
        marks = [f"{column.name} is missing" for column in marked]
        first = [name for column in numbers for name in column.names]
        return [*first, *marks, *(name for column in categories for name in column.code_names)]

    @property
    def input_columns(self) -> list[str]:
        """The column that each of the inputs comes from, a category being one input."""
        numbers, marked, categories = self._in_order()
        first = [column.name for column in numbers for _ in range(column.width)]
        return [*first, *(column.name for column in (*marked, *categories))]

    def _in_order(self) -> tuple[list[Column], list[Column], list[Column]]:
        """Numbers and dates, those of them whose gaps have a feature of their own, and what has codes.

        Integers that are numbers and categories come last.
        """
        numbers = [column for column in self.columns if not isinstance(column, Category)]
        marked = [column for column in numbers if column.marks_gaps]
        coded = [column for column in self.columns if column.code_names]
        return numbers, marked, sorted(coded, key=lambda column: not isinstance(column, Category))

    def unknown(self, raw: Frame) -> list[str]:
        """A sentence on rows that differ from the training rows."""
        return describe_unusual(judge_rows(raw, self.columns).warnings, raw.index)

    def as_plain(self) -> dict[str, Any]:
        """What was learned, as containers of text and numbers."""
        columns = [{"kind": column.kind, **asdict(column)} for column in self.columns]
        return {"columns": columns, "csv": self.csv, "target_forms": self.target_forms}

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> Self:
        """A fitted encoder."""
        encoder = cls()
        encoder.columns = tuple(map(_read_column, plain["columns"]))
        encoder.csv = msgspec.convert(plain["csv"], dict[str, str])
        encoder.target_forms = msgspec.convert(plain["target_forms"], dict[str, str])
        return encoder


def _read_column(plain: Mapping[str, Any]) -> Column:
    kind = msgspec.convert(plain["kind"], Literal["number", "date", "category", "ngrams"])
    column: Column = msgspec.convert(plain, _KINDS[kind])
    return column
