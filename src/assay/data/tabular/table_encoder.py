"""Columns of a table as one tensor of floats."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, Self, final

import numpy as np
import pandas as pd
import torch

from assay.data.tabular import column_kind
from assay.data.tabular.column_kind import is_number
from assay.errors import DataError
from assay.quoting import override

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray
    from torch import Tensor

MOST_BUCKETS = 1 << 16


@final
@dataclass(frozen=True)
class Column:
    """How one column becomes numbers."""

    name: str
    kind: str
    fill: float | str | None = None
    codes: Mapping[str, int] = field(default_factory=dict)
    other: int | None = None
    parts: tuple[str, ...] = ()
    start: float = 0.0
    form: str = column_kind.ISO
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
        return tuple(column_kind.parts_of(fill, self.parts, self.start)[0].tolist())

    def far_off(self, column: pd.Series[Any]) -> NDArray[np.bool_]:
        """Where numbers or dates lie outside of those of training by more than these differ."""
        if self.span is None:
            return np.zeros(len(column), dtype=bool)
        if column.dtype.kind == "M":
            numbers = column_kind.days_since_1970(column)
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
    """Refuse a table that lacks a column."""
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
    """Refuse what an encoder does not learn."""
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
        or not set(column.parts) <= set(column_kind.PARTS)
        or not (column.fill is None or isinstance(column.fill, fill))
        or not (column.other is None or column.other in codes)
    ):
        raise ValueError(f"not what a table's encoder has learned: column {column.name!r:.40}")
    return column


@final
class TableEncoder:
    """Numbers as they are, dates in parts, a column for each category; see `assay.data.table.Table`.

    Fitted on the training rows. A category that training lacks counts with the rarest ones, or as none of
    them. What is learned is plain data (`as_plain`), so that it can be kept and applied to new rows.
    """

    def __init__(
        self,
        impute: bool = False,
        max_categories: int | None = None,
        *,
        forms: Mapping[str, str] | None = None,
        buckets: Mapping[str, int] | None = None,
    ) -> None:
        self._impute, self._max_categories = impute, max_categories
        self._forms, self._buckets = forms or {}, buckets or {}
        self.columns: tuple[Column, ...] = ()
        self.csv: dict[str, str] = {}

    def fit(self, raw: pd.DataFrame, rows: NDArray[np.int64]) -> None:
        """Learn the categories, and the values to fill in."""
        kinds = {str(name): "words" if name in self._buckets else _kind(raw[name]) for name in raw.columns}
        training = raw.iloc[rows]
        self.columns = tuple(self._learn(name, kind, training[name]) for name, kind in kinds.items())

    def _learn(self, name: str, kind: str, column: pd.Series[Any]) -> Column:
        gaps = bool(column.isna().any())
        if kind == "words":
            return Column(name, kind, "", buckets=self._buckets[name], gaps=gaps)
        if kind == "date":
            return self._learn_date(name, column)
        if kind == "number":
            numbers = _numbers(column, name)
            known = numbers[~np.isnan(numbers)]
            fill = float(np.median(known)) if len(known) else 0.0
            gaps = len(known) < len(numbers)
            return Column(name, kind, fill if self._impute else None, gaps=gaps, span=_span(known))
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
        return Column(name, kind, most if self._impute else None, codes, other, gaps=gaps)

    def _learn_date(self, name: str, column: pd.Series[Any]) -> Column:
        """The parts that vary: of the others a model learns nothing, and a new value would lead it astray."""
        form = self._forms.get(name, column_kind.ISO)
        days = column_kind.days_since_1970(column_kind.as_dates(column, form))
        known = np.sort(days[~np.isnan(days)])
        start = float(known[0]) if len(known) else 0.0
        values = column_kind.parts_of(known, column_kind.PARTS, start)
        varying = [part for at, part in enumerate(column_kind.PARTS) if len(np.unique(values[:, at])) > 1]
        fill = float(known[(len(known) - 1) // 2]) if len(known) else 0.0  # a date that there is
        return Column(
            name,
            "date",
            fill if self._impute else None,
            parts=tuple(varying) or ("elapsed",),
            start=start,
            form=form,
            gaps=len(known) < len(days),
            span=_span(known),
        )

    def transform(self, raw: pd.DataFrame) -> Tensor:
        """Float32 `[N, F]`: numbers and dates in the table's order, then categories, then hashed texts."""
        self.check_columns([str(name) for name in raw.columns])
        encode = {"category": _one_hot, "words": hashed_texts}
        encoded = [encode.get(one.kind, _filled)(raw[one.name], one) for one in self._in_order()]
        if not len(raw):
            return torch.zeros(0, sum(column.width for column in self.columns))
        with np.errstate(over="ignore"):
            values = np.column_stack(encoded).astype(np.float32)
        return torch.from_numpy(np.ascontiguousarray(values))

    @property
    def feature_names(self) -> list[str]:
        """What each of the F inputs is called: its column, and of which category, part or word it is."""
        return [name for column in self._in_order() for name in column.names]

    def _in_order(self) -> list[Column]:
        order = {"number": 0, "date": 0, "category": 1, "words": 2}
        return sorted(self.columns, key=lambda column: order[column.kind])

    def check_columns(self, names: Sequence[str]) -> None:
        """Refuse a table that lacks a column."""
        check_columns(self.columns, names)

    def unknown(self, raw: pd.DataFrame) -> list[str]:
        """Sentences on what the training rows had none of: some categories, values that are missing."""
        told = []
        for column in self.columns:
            missing = int(raw[column.name].isna().sum())
            if missing and column.fill is not None and not column.gaps:
                told.append(
                    f"{missing:,} of {len(raw):,} rows have no {column.name!r}, which each training row has: "
                    "it is filled in"
                )
            if number := int(column.far_off(raw[column.name]).sum()):
                told.append(
                    f"{number:,} of {len(raw):,} rows have a {column.name!r} far outside the training range, "
                    f"{column.span_text}"
                )
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
        """An encoder that has learned already."""
        encoder = cls()
        try:
            encoder.columns = tuple(
                checked(
                    Column(**column | {"parts": tuple(column.get("parts", ())), "span": span and tuple(span)})
                )
                for column in plain["columns"]
                for span in [column.get("span")]
            )
            encoder.csv = {key: str(plain["csv"][key]) for key in plain.get("csv", ())}
        except (TypeError, KeyError) as error:
            raise ValueError(f"not what a table's encoder has learned: {error}") from error
        names = [column.name for column in encoder.columns]
        if not names or len(set(names)) < len(names):
            raise ValueError("not what a table's encoder has learned: no column, or two of one name")
        return encoder


def _span(known: NDArray[np.float64]) -> tuple[float, float] | None:
    return (float(known.min()), float(known.max())) if len(known) else None


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


def _numbers(column: pd.Series[Any], name: str) -> NDArray[np.float64]:
    """Float64, NaN where a value is missing or infinite."""
    if not is_number(column):
        raise DataError(
            f"data: the column {name!r} holds numbers in the training table, and something else here",
            hint="clean the column, or train without it: " + override("data.source.exclude", [name]),
        )
    values: NDArray[np.float64] = column.to_numpy(dtype=np.float64, na_value=np.nan)
    return np.where(np.isinf(values), np.nan, values)


def category_texts(column: pd.Series[Any]) -> pd.Series[Any]:
    """Categories as text; 1.0 is 1, for a column of integers with a gap is one of floats."""
    if isinstance(column.dtype, pd.StringDtype):
        return column.dropna().astype(object)
    return column.dropna().map(
        lambda value: str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)
    )


def distinct_texts(column: pd.Series[Any]) -> tuple[NDArray[np.intp], list[str]]:
    """Each row's place among the categories that occur, -1 where it has none, and these as text."""
    is_text = isinstance(column.dtype, pd.StringDtype)
    places, texts = pd.factorize(column if is_text else category_texts(column).reindex(column.index))
    return places, [str(text) for text in texts]


def _filled(column: pd.Series[Any], learned: Column) -> NDArray[np.float64]:
    if learned.kind == "date":
        days = column_kind.days_since_1970(column_kind.as_dates(column, learned.form))
        if (wrong := np.isnan(days) & column.notna().to_numpy()).any():
            raise DataError(
                f"data: the column {learned.name!r} must hold dates as the training table does, and has "
                f"{str(column[wrong].iloc[0])[:40]!r}",
                hint="write them in the same way",
            )
        numbers = column_kind.parts_of(days, learned.parts, learned.start)
    else:
        numbers = _numbers(column, learned.name)[:, None]
    missing = np.isnan(numbers[:, 0])
    if missing.any():
        _check_fill(learned, missing)
        numbers[missing] = learned.fills
    return numbers


def _one_hot(column: pd.Series[Any], learned: Column) -> NDArray[np.float32]:
    places, texts = distinct_texts(column)
    missing = places < 0
    if missing.any():
        _check_fill(learned, missing)
    unknown = -1 if learned.other is None else learned.other
    # The last one is for those that are missing, whose place is -1.
    known = np.array([learned.codes.get(text, unknown) for text in [*texts, str(learned.fill)]])
    codes = known[places]
    columns = np.arange(learned.width)
    hot: NDArray[np.float32] = (codes[:, None] == columns).astype(np.float32)
    return hot


def hashed_texts(column: pd.Series[Any], learned: Column) -> NDArray[np.float32]:
    """Counts of hashed words, float32 `[N, buckets]`, of unit length; zeros where there is no text."""
    from sklearn.feature_extraction.text import (  # type: ignore[import-untyped]  # ships no types
        HashingVectorizer,
    )

    texts = column.astype(object).where(column.notna(), "").astype(str)
    vectorizer = HashingVectorizer(n_features=learned.buckets, dtype=np.float32)
    hashed: NDArray[np.float32] = vectorizer.transform(texts).toarray()
    return hashed


def _check_fill(learned: Column, missing: NDArray[np.bool_]) -> None:
    if learned.fill is None:
        raise DataError(
            f"data: the column {learned.name!r} has no finite value in row {int(missing.argmax())} (rows "
            "count from 0), and the encoder knows none to fill in",
            hint="fill it in, leave such rows out, or train with data.source.missing=impute",
        )
