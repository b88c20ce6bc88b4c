"""Columns of a table as one tensor of floats; rows that cannot be encoded are named."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from datetime import date
from statistics import NormalDist
from typing import TYPE_CHECKING, Any, Literal, Self, final

import msgspec
import numpy as np
import pandas as pd
import torch
from pandas.api.types import is_datetime64_any_dtype

from assay.config.did_you_mean import did_you_mean
from assay.data.table import column_kind
from assay.data.table.amount import TIME, format_amount, is_amount, parse_amounts
from assay.data.table.column_kind import Part, is_number, is_text
from assay.data.table.ngrams import encode_ngrams, learn_ngrams, ngram_width
from assay.errors import DataError
from assay.quoting import join_first

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray
    from torch import Tensor

    from assay.data.core.types import Bools, Floats, Frame, Rows, Strings, Values


_MARKED = 10
"""Training rows that lack a number or a date, from which on that is a feature of its own."""


@final
@dataclass(frozen=True)
class Column:
    """How one column becomes numbers."""

    name: str
    kind: Literal["number", "date", "category", "text", "ngrams"]
    fill: float | str | None = None
    codes: dict[str, int] = field(default_factory=dict)
    other: int | None = None
    parts: tuple[Part, ...] = ()
    start: float = 0.0
    form: str = column_kind.ISO
    gaps: bool = True
    span: tuple[float, float] | None = None
    marks_gaps: bool = False
    shift: float = 0.0
    knots: tuple[float, ...] = ()
    """Values of a number between which it is mapped to `scores` in straight lines; empty: it is not."""
    scores: tuple[float, ...] = ()
    ngrams: str = ""
    """See `assay.data.table.ngrams`."""
    spike: float | None = None
    """A value at an end of many rows, which has a feature of its own."""

    @property
    def unknown(self) -> int:
        """The code of a category that training lacks."""
        if self.other is None:
            return self.width
        return self.other

    @property
    def width(self) -> int:
        """How many numbers it becomes, a category each."""
        if self.kind == "category":
            return max(self.codes.values(), default=0) + 1
        if self.kind == "ngrams":
            return ngram_width(self.ngrams)
        return self.raw_width + (self.spike is not None)

    @property
    def raw_width(self) -> int:
        """How many numbers it is before they are mapped."""
        return len(self.parts) or 1

    @property
    def names(self) -> list[str]:
        """What each of these numbers is called."""
        if self.kind == "category":
            texts = {
                code: text or "missing" for text, code in self.codes.items() if code != self.other
            }
            return [f"{self.name}={texts.get(code, 'other')}" for code in range(self.width)]
        if self.kind == "ngrams":
            return [f"{self.name}, text {place}" for place in range(self.width)]
        if self.parts:
            return [f"{self.name}, {part}" for part in self.parts]
        names = [self.name]
        if self.shift:
            names = [f"{self.name} - {self.shift:.12g}"]
        if self.spike is not None:
            names.append(f"{self.name} is {self.spike:.6g}")
        return names

    @property
    def fills(self) -> tuple[float, ...]:
        """What stands for a missing number or date, a value for each of its numbers; NaN: nothing does."""
        fill = np.array([np.nan if self.fill is None else float(self.fill)])
        return tuple(column_kind.date_parts(fill, self.parts, self.start)[0].tolist())

    @property
    def wanted(self) -> str:
        """What a value of it is, for messages."""
        if is_amount(self.form):
            return f"a number such as {format_amount(12.5, self.form)}"
        if self.kind != "date":
            return "a number"
        if self.form == TIME:
            return "a time of day such as 13:08"
        examples = {column_kind.ISO: "2024-12-31", "s": "1735603200", "ms": "1735603200000"}
        if self.form not in examples:
            return f"a date such as {date(2024, 12, 31).strftime(self.form.partition('|')[0])}"
        return f"a date such as {examples[self.form]}"


def check_trained_columns(columns: Sequence[Column], names: Strings, where: str = "data") -> None:
    """Refuse a table that lacks a column that a model was trained on, or has it twice."""
    if missing := [column.name for column in columns if column.name not in names]:
        named = f"column{'s' if len(missing) > 1 else ''} {', '.join(map(repr, missing))}"
        raise DataError(
            f"{where}: the table has no {named}, which the model was trained on"
            f"{did_you_mean(missing[0], names, '; ')}",
            hint=f"it has: {', '.join(map(str, names))}",
        )
    if twice := [column.name for column in columns if list(names).count(column.name) > 1]:
        raise DataError(
            f"{where}: the table has two columns called {twice[0]!r}", hint="rename one of them"
        )


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
        *,
        forms: Mapping[str, str] | None = None,
        ngrams: Strings = (),
    ) -> None:
        self._impute = impute
        self._max_categories = max_categories
        self._forms = forms or {}
        self._ngrams = ngrams
        self.columns: tuple[Column, ...] = ()
        self.csv: dict[str, str] = {}
        self.target_forms: dict[str, str] = {}
        self.notes: tuple[str, ...] = ()

    def fit(self, raw: Frame, rows: Rows) -> None:
        """Learn the categories, and the values to fill in."""
        training = raw.iloc[rows]
        columns = []
        for name in map(str, raw.columns):
            form = self._forms.get(name, "")
            column = training[name]
            if name in self._ngrams:
                columns.append(self._learn_ngrams(name, column))
            elif is_amount(form):
                columns.append(self._learn_number(name, parse_amounts(column, form), form))
            elif form or is_datetime64_any_dtype(column):
                columns.append(self._learn_date(name, column))
            elif is_number(column):
                columns.append(self._learn_number(name, column))
            else:
                columns.append(self._learn_category(name, column))
        self.columns = tuple(columns)
        if mapped := [column.name for column in columns if column.knots]:
            self.notes = (
                f"numbers with a long tail are mapped by their quantiles to a normal distribution: "
                f"{join_first(mapped)}",
            )

    def _learn_number(self, name: str, column: Values, form: str = "") -> Column:
        numbers = _to_floats(column)
        present = numbers[~np.isnan(numbers)]
        fill = 0.0
        if len(present):
            fill = float(np.median(present))
        knots, scores = _find_knots(present)
        return self._scalar(
            name,
            "number",
            numbers,
            fill,
            form=form,
            shift=0.0 if knots else _find_shift(present),
            knots=knots,
            scores=scores,
            spike=_find_spike(present) if knots else None,
        )

    def _scalar(
        self, name: str, kind: Any, numbers: Floats, fill: float, **learned: Any
    ) -> Column:
        """A column of numbers, or of days since 1970, of which NaN is missing."""
        present = numbers[~np.isnan(numbers)]
        gaps = len(numbers) - len(present)
        if len(present):
            span = (float(present.min()), float(present.max()))
        else:
            span = None
        return Column(
            name,
            kind,
            fill if self._impute else None,
            gaps=gaps > 0,
            span=None if learned["form"] == TIME else span,
            marks_gaps=self._impute and gaps >= _MARKED,
            **learned,
        )

    def _learn_category(self, name: str, column: Values) -> Column:
        places, texts = _distinct_texts(column)
        numbers = np.bincount(places + 1, minlength=len(texts) + 1).tolist()
        counts = dict(zip(texts, numbers[1:], strict=True))
        gaps = numbers[0] > 0
        if gaps and self._impute:  # that a value is missing may say something, too
            counts[""] = numbers[0]
        names = sorted(counts, key=lambda text: (-counts[text], text))
        limit = self._max_categories or len(names)
        frequent = names
        other = None
        if len(names) > limit:
            frequent = names[: limit - 1]
            other = limit - 1
        codes = {text: code for code, text in enumerate(sorted(frequent))}
        codes = {text: codes.get(text, len(frequent)) for text in sorted(names)}
        fill = None
        if self._impute:
            fill = "" if gaps else next(iter(names), "")
        return Column(name, "category", fill, codes, other, gaps=gaps)

    def _learn_ngrams(self, name: str, column: Values) -> Column:
        texts = category_texts(column).astype(str).tolist()
        learned = learn_ngrams(texts)
        if not learned:
            return self._learn_category(name, column)
        fill = "" if self._impute else None
        return Column(name, "ngrams", fill, gaps=bool(column.isna().any()), ngrams=learned)

    def _learn_date(self, name: str, column: Values) -> Column:
        form = self._forms.get(name, column_kind.ISO)
        days = column_kind.days_since_1970(column_kind.parse_dates(column, form))
        present = np.sort(days[~np.isnan(days)])
        start = 0.0
        if len(present):
            start = float(present[0])
        if form == TIME:
            parts = column_kind.TIME_PARTS
        else:
            parts = column_kind.PARTS
        # a date that there is
        fill = 0.0
        if len(present):
            fill = float(present[(len(present) - 1) // 2])
        return self._scalar(
            name,
            "date",
            days,
            fill,
            form=form,
            start=start,
            parts=column_kind.varying_parts(present, parts),
        )

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
                filled[place : place + column.width] = _encode(judged[column.name], column).T
                place += column.width
        for column in marked:
            filled[place] = np.isnan(_to_numbers(judged[column.name], column))
            place += 1
        for column in categories:
            filled[place] = _encode_categories(judged[column.name], column)
            place += 1
        return torch.from_numpy(filled).t().contiguous()

    @property
    def categories(self) -> tuple[int, ...]:
        """How many categories there are codes of, for each of the last columns."""
        return tuple(column.width for column in self.columns if column.kind == "category")

    @property
    def feature_names(self) -> list[str]:
        """What each of the inputs is called, of a category each: its column, and which one or part it is."""
        numbers, marked, categories = self._in_order()
        marks = [f"{column.name} is missing" for column in marked]
        first = [name for column in numbers for name in column.names]
        return [*first, *marks, *(name for column in categories for name in column.names)]

    @property
    def input_columns(self) -> list[str]:
        """The column that each of the inputs comes from, a category being one input."""
        numbers, marked, categories = self._in_order()
        first = [column.name for column in numbers for _ in range(column.width)]
        return [*first, *(column.name for column in (*marked, *categories))]

    def _in_order(self) -> tuple[list[Column], list[Column], list[Column]]:
        """Numbers and dates, those of them whose gaps have a feature of their own, and categories."""
        numbers = [column for column in self.columns if column.kind != "category"]
        marked = [column for column in numbers if column.marks_gaps]
        return numbers, marked, [column for column in self.columns if column.kind == "category"]

    def unknown(self, raw: Frame) -> list[str]:
        """A sentence on rows that differ from the training rows."""
        return describe_unusual(judge_rows(raw, self.columns).warnings, raw.index)

    def as_plain(self) -> dict[str, Any]:
        """What was learned, as containers of text and numbers."""
        columns = [asdict(column) for column in self.columns]
        return {"columns": columns, "csv": self.csv, "target_forms": self.target_forms}

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> Self:
        """A fitted encoder."""
        encoder = cls()
        encoder.columns = msgspec.convert(plain["columns"], tuple[Column, ...])
        encoder.csv = msgspec.convert(plain["csv"], dict[str, str])
        encoder.target_forms = msgspec.convert(plain["target_forms"], dict[str, str])
        return encoder


_LONG_TAIL = 2.5
"""From the median to the percentile at an end, in distances of the quartiles; 1.7 of a normal one."""
_MOST_LOOKED_AT = 50_000
_MOST_KNOTS = 256
_FEWEST_DIFFERENT = 20
_SPIKE = 0.1
"""Share of the rows."""


def _find_knots(values: Floats) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Quantiles of a number with a long tail, and the same of a normal distribution; else nothing.

    Values that stand for several quantiles go to the middle of these.
    """
    if not _has_long_tail(values):
        return (), ()
    shares = np.linspace(0, 1, min(_MOST_KNOTS, len(values)))
    knots, places, counts = np.unique(
        np.quantile(values, shares), return_inverse=True, return_counts=True
    )
    middles = np.bincount(places, shares) / counts
    end = 1 / (2 * len(values))
    normal = NormalDist()
    scores = [normal.inv_cdf(share) for share in middles.clip(end, 1 - end)]
    return tuple(knots.tolist()), tuple(scores)


def _has_long_tail(values: Floats) -> bool:
    if len(values) < _FEWEST_DIFFERENT or len(np.unique(values[:1000])) < _FEWEST_DIFFERENT:
        return False
    sample = values[:: max(1, len(values) // _MOST_LOOKED_AT)]
    low, lower, middle, upper, high = np.quantile(sample, [0.01, 0.25, 0.5, 0.75, 0.99])
    return bool(max(high - middle, middle - low) > _LONG_TAIL * (upper - lower))


def _find_spike(values: Floats) -> float | None:
    """The least or the largest value, where many rows have it."""
    for end in (values.min(), values.max()):
        if (values == end).mean() >= _SPIKE:
            return float(end)
    return None


_PRECISE = 1e-4
"""Of a deviation, which rounding to 32 bits may cost at most."""


def _find_shift(values: Floats) -> float:
    """What is subtracted before numbers become 32 bits, which of 1.7e9 and more keep no units."""
    if not len(values):
        return 0.0
    lost = np.abs(values).max() * np.finfo(np.float32).eps / 2
    deviation = values.std()
    if deviation and lost > _PRECISE * deviation:
        return float(f"{np.median(values):.12g}")
    return 0.0


def _to_floats(column: Values) -> Floats:
    """Float64, NaN where a value is missing or infinite."""
    values: Floats = column.to_numpy(dtype=np.float64, na_value=np.nan)
    return np.where(np.isinf(values), np.nan, values)


def category_texts(column: Values) -> Values:
    """Categories as text; 1.0 is 1."""
    if is_text(column):
        return column.dropna().astype(object)
    return column.dropna().map(column_kind.as_text)


def _distinct_texts(column: Values) -> tuple[NDArray[np.intp], list[str]]:
    """Each row's place among the categories that occur, -1 where it has none, and these as text."""
    places, texts = pd.factorize(
        column if is_text(column) else category_texts(column).reindex(column.index)
    )
    return places, [str(text) for text in texts]


def _encode_categories(values: Values, learned: Column) -> NDArray[Any]:
    places, texts = _distinct_texts(values)
    # The last one is for those that are missing, whose place is -1.
    codes = np.array(
        [learned.codes.get(text, learned.unknown) for text in [*texts, str(learned.fill)]]
    )
    encoded: NDArray[Any] = codes[places]
    return encoded


def _to_numbers(values: Values, learned: Column) -> Floats:
    """Numbers, or days since 1970; NaN where one is missing."""
    if learned.kind == "date":
        return column_kind.days_since_1970(values)
    return _to_floats(values)


def _encode(values: Values, learned: Column) -> NDArray[Any]:
    if learned.kind == "ngrams":
        places, texts = _distinct_texts(values)
        return encode_ngrams([*texts, ""], learned.ngrams)[places]
    numbers = _to_numbers(values, learned)
    if learned.kind == "date":
        numbers = column_kind.date_parts(numbers, learned.parts, learned.start)
    else:
        numbers = numbers[:, None]
    missing = np.isnan(numbers[:, 0])
    if missing.any():
        numbers[missing] = learned.fills
    mapped = numbers - learned.shift
    if learned.knots:
        mapped = np.interp(numbers, learned.knots, learned.scores)
    if learned.spike is None:
        return mapped
    return np.column_stack([mapped, numbers == learned.spike])


_LARGEST = float(np.finfo(np.float32).max)
TRUTH_VALUES = {"True": 1.0, "TRUE": 1.0, "true": 1.0, "False": 0.0, "FALSE": 0.0, "false": 0.0}
_SHOWN = 40


@final
@dataclass(frozen=True)
class JudgedRows:
    """A table with errors and warnings per row."""

    frame: Frame
    errors: dict[int, str] = field(default_factory=dict)
    warnings: dict[int, str] = field(default_factory=dict)


def judge_rows(frame: Frame, columns: Sequence[Column], *, decimal: str = ".") -> JudgedRows:
    """Find the rows that an encoder refuses, and those that differ from training."""
    judged = JudgedRows(pd.DataFrame(index=range(len(frame))))
    for learned in columns:
        values = column = frame[learned.name].reset_index(drop=True)
        missing = column.isna().to_numpy()
        if learned.kind == "text":
            missing = blank_texts(column)
            foreign = ~missing & column.astype(str).str.contains("\ufffd", regex=False).to_numpy(
                dtype=bool
            )
            sentence = "is {}, which is not all text in UTF-8 (--encoding names another)"
            _note(judged.warnings, foreign, column, sentence)
        elif learned.kind == "category":
            _judge_categories(judged, learned, column)
        elif learned.kind != "ngrams":
            values, missing = _judge_values(judged, learned, column, decimal)
        if learned.fill is None:
            sentence = "value"
            if learned.kind in ("text", "ngrams"):
                sentence = "text"
            _note(judged.errors, missing, column, f"has no {sentence}")
        elif not learned.gaps:
            filled = "is missing, although no training row lacks it; it is filled in"
            _note(judged.warnings, missing, column, filled)
        judged.frame[learned.name] = values
    return judged


def _judge_values(
    judged: JudgedRows, learned: Column, column: Values, decimal: str
) -> tuple[Values, Bools]:
    """Numbers or dates, and where they are missing."""
    of_date = learned.kind == "date"
    values: Values
    if of_date:
        values = column_kind.parse_dates(column, learned.form)
    elif is_amount(learned.form):
        values = parse_amounts(column, learned.form)
    else:
        values = _numbers(column, decimal)
    bad = (column.notna() & values.isna()).to_numpy()
    _note(judged.errors, bad, column, f"is {{}}, not {learned.wanted}")
    missing = values.isna().to_numpy() & ~bad
    if of_date:
        numbers = column_kind.days_since_1970(values)
    else:
        numbers = values.to_numpy()
    large = (np.abs(numbers) > _LARGEST) & (np.isfinite(numbers) | (learned.fill is None))
    _note(judged.errors, large, column, "is {}, which is too large")
    missing = missing | (np.isinf(numbers) & ~large)
    # Outside of those of training by more than these differ.
    low, high = learned.span or (-np.inf, np.inf)
    far = (numbers < 2 * low - high) | (numbers > 2 * high - low)
    ends = [
        str(np.datetime64(int(end // 1), "D")) if of_date else f"{end:.6g}"
        for end in learned.span or ()
    ]
    sentence = f"is {{}}, far outside the training range, {' to '.join(ends)}"
    _note(judged.warnings, far & np.isfinite(numbers) & ~large, column, sentence)
    return values, missing


def _judge_categories(judged: JudgedRows, learned: Column, column: Values) -> None:
    places, distinct = _distinct_texts(column)
    unknown = np.array([*(text not in learned.codes for text in distinct), False])[places]
    if not unknown.any():
        return
    texts = category_texts(column).reindex(column.index, fill_value="")
    foreign = unknown & texts.str.contains("\ufffd", regex=False).to_numpy()
    _note(
        judged.errors,
        foreign,
        column,
        "is {}, which is not text in UTF-8 (--encoding names another)",
    )
    counts = "as none of the known ones"
    if learned.other is not None:
        counts = "with the rarest ones"
    odd = unknown & ~foreign
    known = {text.strip().casefold(): text for text in learned.codes}
    alike = texts.str.strip().str.casefold().map(known).fillna("").to_numpy()
    for text in np.unique(alike[odd]):  # empty for what is like none
        known_as = ""
        if text:
            known_as = f" (it has {str(text)!r})"
        sentence = f"is {{}}, which no training row has{known_as}: it counts {counts}"
        _note(judged.warnings, odd & (alike == text), column, sentence)


def describe_unusual(odd: Mapping[int, str], rows: Sequence[Any] | pd.Index[Any]) -> list[str]:
    """A sentence on rows that are unlike those of training, by their position."""
    if not odd:
        return []
    position, why = min(odd.items())
    some = f"{len(odd):,} of {len(rows):,} rows are unlike the training rows"
    return [f"{some}, first row {rows[position]} (rows count from 0): {why}"]


def blank_texts(texts: Values) -> Bools:
    """Which texts are missing, or are nothing but white space."""
    blank: Bools = (texts.isna() | ~texts.astype(str).str.contains(r"\S")).to_numpy(dtype=bool)
    return blank


def _note(noted: dict[int, str], wrong: Bools, column: Values, sentence: str) -> None:
    for row in np.flatnonzero(wrong):
        message = (
            f"{column.name!r} {sentence.replace('{}', repr(str(column.iloc[row])[:_SHOWN]), 1)}"
        )
        if int(row) in noted:
            noted[int(row)] = f"{noted[int(row)]}; {message}"
        else:
            noted[int(row)] = message


def _numbers(column: Values, decimal: str) -> Values:
    """Float64; NaN for what is no number."""
    if is_number(column):
        return column.astype(np.float64)
    points = column.map(
        lambda value: use_decimal_point(str(value).strip(), decimal), na_action="ignore"
    )
    values = pd.to_numeric(points, errors="coerce").astype(np.float64)
    # A column of yes and no in which another text stands, too.
    if values.isna().all():
        return points.map(TRUTH_VALUES).astype(np.float64)
    return values


def use_decimal_point(text: str, decimal: str) -> str:
    """A number as pandas reads it; 1.234 is none where the decimal point is a comma."""
    if decimal == ".":
        return text
    return text.replace(".", "?").replace(decimal, ".")
