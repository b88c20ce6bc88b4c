"""A column of a table: what each kind learns, reads, encodes and tells; rows judged by columns. No torch."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, final

import numpy as np
import pandas as pd
from pandas.api.types import is_numeric_dtype

from assay.config.did_you_mean import did_you_mean, list_names
from assay.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from numpy.typing import NDArray
    from torch import Tensor

    from assay.data.core.types import Bools, Floats, Frame, Strings, Values

_WORDS = "#N/A,#N/A N/A,#NA,-1.#IND,-1.#QNAN,-NaN,-nan,1.#IND,1.#QNAN,<NA>,N/A,NA,NULL,NaN,None,n/a,nan,null"
WORDS = frozenset(_WORDS.split(","))
"""What pandas takes for a missing value, beside an empty cell."""
MISSING_WORDS = WORDS.union(
    ["?", "-", ".", "unknown", "Unknown", "UNKNOWN", "missing", "Missing", "MISSING"]
)
"""Words for a missing value among numbers and dates."""
MARKED = 10
"""Training rows that lack a number or a date, from which on that is a feature of its own."""
FEW = 10
"""Different values that are never too many for categories."""
_LARGEST = float(np.finfo(np.float32).max)
_SHOWN = 40
_SAMPLE = 1000


@final
@dataclass(frozen=True)
class JudgedRows:
    """A table with errors and warnings per row."""

    frame: Frame
    errors: dict[int, str] = field(default_factory=dict)
    warnings: dict[int, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Column(ABC):
    """How one column becomes numbers: a final class for each kind, which has a `learn` of its own.

    Attributes:
        name: In the table.
        fill: What stands for a missing value; None: nothing does.
        gaps: Whether training rows lack a value.
        marks_gaps: Whether it is a feature of its own that a value is missing.
        span: Ends of the training rows' numbers.
    """

    name: str
    fill: float | str | None = None
    gaps: bool = True
    marks_gaps: bool = False
    span: tuple[float, float] | None = None

    @property
    @abstractmethod
    def kind(self) -> str:
        """Its name in `encoder.json`."""

    @property
    def names(self) -> list[str]:
        """What each of the numbers that it becomes is called."""
        return []

    @property
    def width(self) -> int:
        """How many these are."""
        return len(self.names)

    @property
    def reads_texts(self) -> bool:
        """Whether the cells of a CSV file are texts, whatever they look like."""
        return False

    @property
    def has_integers(self) -> bool:
        """Whether texts such as 1.0 stand for 1."""
        return False

    @property
    def missing_words(self) -> frozenset[str]:
        """Texts that stand for a missing value."""
        return MISSING_WORDS | {""}

    @abstractmethod
    def read(self, cells: Values, judged: JudgedRows, decimal: str) -> tuple[Values, Bools]:
        """The values of cells, and which are missing; what is wrong or unusual is noted in `judged`."""

    def encode(self, values: Values) -> NDArray[Any]:
        """Numbers `[N, F]` of values that were read."""
        raise NotImplementedError

    @property
    def code_names(self) -> list[str]:
        """What each of the codes that it becomes is called; empty where it has none."""
        return []

    def encode_codes(self, values: Values) -> NDArray[Any]:
        """Codes `[N]` of values that were read; of one that training lacks the number of codes."""
        raise NotImplementedError

    def is_missing(self, values: Values) -> Bools:
        """Which of the values that were read are missing."""
        return values.isna().to_numpy(dtype=bool)

    # -- in an exported file ---------------------------------------------------------------------------------

    def export_inputs(self, values: Values) -> NDArray[Any]:
        """What the file takes of values that were read: numbers `[N]` or `[N, F]`, or texts `[N]`."""
        raise NotImplementedError

    @property
    def fills(self) -> tuple[float, ...]:
        """What stands for each of these numbers where it is missing; NaN: nothing does."""
        return ()

    @property
    def shift(self) -> float:
        """What is subtracted from them before they become 32 bits."""
        return 0.0

    def trace(self, filled: Tensor, shifted: Tensor) -> list[Tensor]:
        """As `encode`, of numbers without gaps, and of the same as float32 after `shift`."""
        del filled
        return [shifted]

    def trace_codes(self, filled: Tensor) -> list[Tensor]:
        """As `encode_codes`, float32 `[B, 1]`, of numbers without gaps; none where it has no codes."""
        del filled
        return []

    def describe(self, na_values: Strings) -> list[dict[str, Any]]:
        """What the model card says of each of its inputs."""
        del na_values
        entry: dict[str, Any] = {"name": self.name, "kind": self.kind, "missing": self.fill}
        if self.marks_gaps:
            entry["marked"] = True
        return [entry]

    def make_up(self, count: int) -> Any:
        """Cells such as those of training."""
        raise NotImplementedError

    # -- for its classes -------------------------------------------------------------------------------------

    def judge_numbers(
        self,
        judged: JudgedRows,
        cells: Values,
        values: Values,
        numbers: Floats,
        *,
        wanted: str,
        ends: Sequence[str],
    ) -> Bools:
        """Note cells that are not wanted, too large or far outside of training; which are missing."""
        bad = (cells.notna() & values.isna()).to_numpy()
        note(judged.errors, bad, cells, f"is {{}}, not {wanted}")
        missing = values.isna().to_numpy() & ~bad
        large = (np.abs(numbers) > _LARGEST) & (np.isfinite(numbers) | (self.fill is None))
        note(judged.errors, large, cells, "is {}, which is too large")
        # Outside of those of training by more than these differ.
        low, high = self.span or (-np.inf, np.inf)
        far = (numbers < 2 * low - high) | (numbers > 2 * high - low)
        sentence = f"is {{}}, far outside the training range, {' to '.join(ends)}"
        note(judged.warnings, far & np.isfinite(numbers) & ~large, cells, sentence)
        return missing | (np.isinf(numbers) & ~large)


def measure(numbers: Floats, fill: float, *, impute: bool) -> dict[str, Any]:
    """What columns of numbers, or of days, learn alike; NaN is missing."""
    present = numbers[~np.isnan(numbers)]
    num_missing = len(numbers) - len(present)
    span = None
    if len(present):
        span = (float(present.min()), float(present.max()))
    return {
        "fill": fill if impute else None,
        "gaps": num_missing > 0,
        "marks_gaps": impute and num_missing >= MARKED,
        "span": span,
    }


def judge_rows(frame: Frame, columns: Sequence[Column], *, decimal: str = ".") -> JudgedRows:
    """Find the rows that an encoder refuses, and those that differ from training."""
    judged = JudgedRows(pd.DataFrame(index=range(len(frame))))
    read = {}
    for learned in columns:
        cells = frame[learned.name].reset_index(drop=True)
        if is_text(cells):
            cells = cells.mask(are_words(cells, learned.missing_words))
        values, missing = learned.read(cells, judged, decimal)
        if learned.fill is None:
            noun = "text" if learned.kind in ("text", "ngrams") else "value"
            note(judged.errors, missing, cells, f"has no {noun}")
        elif not learned.gaps:
            filled = "is missing, although no training row lacks it; it is filled in"
            note(judged.warnings, missing, cells, filled)
        read[learned.name] = values
    # At once: pandas warns of a hundred columns that are added one by one.
    return replace(judged, frame=pd.DataFrame(read, index=judged.frame.index, copy=False))


def note(noted: dict[int, str], wrong: Bools, cells: Values, sentence: str) -> None:
    """Add a sentence to the rows of some cells, each in place of `{}`."""
    for row in np.flatnonzero(wrong):
        cell = repr(str(cells.iloc[row])[:_SHOWN])
        message = f"{cells.name!r} {sentence.replace('{}', cell, 1)}"
        if int(row) in noted:
            message = f"{noted[int(row)]}; {message}"
        noted[int(row)] = message


def describe_unusual(odd: Mapping[int, str], rows: Sequence[Any] | pd.Index[Any]) -> list[str]:
    """A sentence on rows that are unlike those of training, by their position."""
    if not odd:
        return []
    position, why = min(odd.items())
    some = f"{len(odd):,} of {len(rows):,} rows are unlike the training rows"
    return [f"{some}, first row {rows[position]} (rows count from 0): {why}"]


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


def check_columns(table: Iterable[Any], names: Strings, path: str, option: str) -> None:
    """Refuse names of columns that a table, or a list of columns, does not have."""
    known = list(table)
    if missing := [name for name in names if name not in known]:
        key = option
        if not option.startswith("data."):
            key = f"data.source.{option}"
        raise DataError(
            f"{key}: {path} has no column {missing[0]!r}{did_you_mean(missing[0], known, '; ')}",
            hint=f"columns: {list_names(known, missing[0])}",
        )


# -- what the cells of a column are --------------------------------------------------------------------------


def is_number(column: Values) -> bool:
    """Whether a column holds numbers, or yes and no."""
    return bool(is_numeric_dtype(column))


def is_text(column: Values) -> bool:
    """Whether a column holds texts."""
    return isinstance(column.dtype, pd.StringDtype)


def is_category(column: Values) -> bool:
    """Whether a column's file says that it holds categories."""
    return isinstance(column.dtype, pd.CategoricalDtype)


def is_nested(column: Values) -> bool:
    """Whether cells hold several values, or bytes."""
    if column.dtype != object:
        return False
    return any(
        isinstance(value, list | tuple | dict | set | bytes | np.ndarray) for value in column
    )


def is_absent(column: Values, values: Collection[Any]) -> Values:
    """Which cells are among values for what is missing, or are texts of white space alone."""
    distinct = pd.Series(column.unique())
    absent = distinct.isin(values)
    if not is_number(column):
        absent |= np.array(
            [isinstance(value, str) and value.isspace() for value in distinct], bool
        )
    return _is_in(column, distinct[absent])


def _is_in(column: Values, values: Collection[Any]) -> Values:
    """As `isin` of pandas, which takes many times as long where there is nothing to find."""
    return column.isin(values) if len(values) else pd.Series(False, column.index)


def are_words(column: Values, words: Collection[str]) -> Values:
    """Which texts are one of some words, also with white space around it."""
    spelled = [
        text for text in column.unique() if isinstance(text, str) and text.strip() in words
    ]
    return _is_in(column, spelled)


def has_few(values: Values, most: int = FEW) -> bool:
    """Whether a column has at most so many different values; most columns show it in their first rows."""
    return bool(values.head(_SAMPLE).nunique() <= most and values.nunique() <= most)


def as_text(value: Any) -> str:
    """A value as text; 1.0 is 1, for a column of integers with a gap is one of floats."""
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value)


def shorten(value: Any) -> str:
    """A cell for messages."""
    return repr(str(value)[:_SHOWN])
