"""What the columns of a table hold, by their names and cells. No torch."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pandas as pd
from pandas.api.types import (
    is_bool_dtype,
    is_datetime64_any_dtype,
    is_float_dtype,
    is_timedelta64_dtype,
)

from assay.data.table.column import FEW, MISSING_WORDS, has_few, is_nested, is_number
from assay.data.table.date import is_date, is_time
from assay.data.table.number import are_codes, looks_like_amount, split_amount

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

    from assay.data.core.types import Frame, Values

Kind = Literal[
    "number", "amount", "category", "date", "time", "duration", "id", "text", "empty", "nested"
]
FORMED = ("amount", "date", "time", "nested")
"""Kinds that are written in a form, which is learned or refused; see `find_form`."""

_MANY = 50
_ROWS_OF_ONE = 10
"""Different texts, and rows of one of them on average, that rather tell who than what."""
ID_NAME = re.compile(
    r"(?i:(^|[_\W])(id|uuid|guid|nr\.?)$|^(index|idx|row|rowid|row_?number)$|^unnamed: \d+$)|[a-z]I[dD]$"
)
ENTITY_NAME = re.compile(
    r"^(account|author|client|customer|device|family|household|machine|member|participant|patient|person"
    r"|player|speaker|student|subject|user)s?([_ -]?(code|key|nr|no|num|number))?$",
    re.I,
)
_PERIOD_NAME = re.compile(r"^(year|quarter|month|week|day|period)$", re.I)
_BIRTH_NAME = re.compile(r"birth|born|dob", re.I)
_TIME_NAME = re.compile(
    r"(^|[_\W])(date|datum|time|timestamp|created|updated)([_\W]|$)|(^|_)ts$|_(at|on)$", re.I
)
_VERSION_NAME = re.compile(r"version|(^|[_\W])ver$", re.I)
_MOST = 0.9
"""Of different texts that are dates or times in a column of such."""
_SIGNS = re.compile(r"[^\w\s]+")
_MOST_UNITS = 3
_ORDINALS = ("st", "nd", "rd")
"""Of ranks and classes, which are no units."""
_SAMPLE = 1000
_DENSE = 1.25
"""Between the first and the last row's number, where some rows were left out."""
_EPOCH_SECONDS = (10**8, 10**13)


def kind_of(column: Values) -> tuple[Kind, str]:
    """What a column holds, and in words why it cannot be predicted from as it is; no words where it can."""
    # What a model learns from ids, free text and empty columns holds for the rows it has seen alone. Text
    # that looks like numbers is unclear: as categories the numbers would be lost.
    values = column
    if not (is_float_dtype(column) and _has_fractions(column)):
        values = column.dropna()
    if values.empty:
        return "empty", "no value in any row"
    if is_nested(values):
        return "nested", f"lists, mappings or bytes such as {str(values.iloc[0])[:40]}"
    if is_datetime64_any_dtype(column):
        return "date", "dates"
    if is_timedelta64_dtype(column) or isinstance(column.dtype, pd.PeriodDtype):
        return "duration", "durations or periods"
    if is_number(column):
        return _kind_of_numbers(str(column.name), values)
    return _kind_of_text(str(column.name), values.astype(str))


def split_hints(frame: Frame, kinds: Mapping[str, tuple[Kind, str]]) -> dict[str, str]:
    """Columns that say which rows belong together (`group`), or from when a row is (`time`)."""
    hints = dict[str, str]()
    periods = list[str]()
    for name in frame.columns:
        column = frame[name].dropna()
        kind, why = kinds.get(name) or kind_of(column)
        is_words = kind == "category" and not is_number(column)
        names_rows = kind == "id" or "e-mail" in why or bool(ENTITY_NAME.match(name))
        names_period = kind == "number" and bool(_PERIOD_NAME.match(name))
        if not (kind == "date" or is_words or names_rows or names_period):
            continue
        different = (column.astype(str) if column.dtype == object else column).unique()
        if len(different) < 2:
            continue
        if kind == "date":
            if not _BIRTH_NAME.search(name):
                hints |= {name: "time"}
        elif names_period:
            periods.append(name)
        elif FEW < len(different) < len(column) and (
            names_rows
            or (
                is_words
                and len(different) > _MANY
                and len(column) <= _ROWS_OF_ONE * len(different)
            )
        ):
            hints[name] = "group"
    return hints | dict.fromkeys(periods if "group" in hints.values() else [], "time")


def _has_fractions(values: Values) -> bool:
    return bool((values.head(_SAMPLE) % 1 > 0).any())


def _kind_of_numbers(name: str, values: Values) -> tuple[Kind, str]:
    if is_bool_dtype(values) or has_few(values) or _has_fractions(values):
        return "number", ""
    numbers = values.to_numpy(dtype=np.float64)
    if not np.isfinite(numbers).all() or (numbers != np.floor(numbers)).any():
        return "number", ""
    different = len(np.unique(numbers))
    low = int(numbers.min())
    high = int(numbers.max())
    if ID_NAME.search(name):
        return "id", f"ids by its name, {different:,} different integers"
    is_dense = (np.diff(numbers) > 0).all() and high - low < _DENSE * different
    if different == len(numbers) and (is_dense or high - low + 1 == different):
        return "id", f"the rows' numbers, {low} to {high}"
    month = numbers // 100 % 100
    day = numbers % 100
    are_days = ((month >= 1) & (month <= 12) & (day >= 1) & (day <= 31)).all()
    if low >= 19000101 and high <= 21001231 and are_days:
        return "date", f"dates such as {int(numbers[0])}"
    is_time = _TIME_NAME.search(name) and _EPOCH_SECONDS[0] <= low and high <= _EPOCH_SECONDS[1]
    return ("date", f"points in time such as {int(numbers[0])}") if is_time else ("number", "")


def _kind_of_text(name: str, values: Values) -> tuple[Kind, str]:
    unique = values.unique()
    sample = [str(value).strip() for value in unique[:_SAMPLE]]
    example = f"such as {sample[0][:40]!r}"
    present = [text for text in sample if text not in MISSING_WORDS] or sample
    if most_are(is_date, present) and not _VERSION_NAME.search(name):
        return "date", f"dates {example}"
    if most_are(is_time, present):
        return "time", f"times of day {example}"
    amounts = [text for text in present if looks_like_amount(text)]
    words = [text for text in sample if not looks_like_amount(text)]
    few = len(unique) <= FEW
    is_amount = len(amounts) > 0.8 * len(present) or (
        len(amounts) > 1 and all(map(_SIGNS.fullmatch, words))
    )
    units = {amount[1] for text in amounts if (amount := split_amount(text))}
    is_amount &= not are_codes(amounts) and len(units) <= _MOST_UNITS
    is_amount &= units.isdisjoint(_ORDINALS)
    # else they are codes, one of which is a word
    is_amount &= not (few and units == {""} and any(map(str.isalpha, words)))
    if (
        is_amount
        and (not few or units != {""} or words)
        and not (units == {""} and ID_NAME.search(name))
    ):
        return "amount", f"numbers {example}"
    if few:
        return ("category", "")
    return _kind_of_words(name, values, unique, sample)


def _kind_of_words(
    name: str, values: Values, unique: NDArray[Any], sample: list[str]
) -> tuple[Kind, str]:
    example = f"such as {sample[0][:40]!r}"
    if ID_NAME.search(name):
        return "id", f"ids by its name, {len(unique):,} different values {example}"
    words = sum(len(text.split()) for text in sample) / len(sample)
    if 2 * len(unique) > len(values):
        counts = f"{len(unique):,} different values in {len(values):,} rows, {example}"
        if words < 1.5:
            return ("id", f"ids or names: {counts}")
        return ("text", f"free text: {counts}")
    if words >= 5:
        return ("text", f"free text {example}")
    return ("category", "")


def most_are(matches: Callable[[str], Any], texts: list[str]) -> bool:
    """Whether nearly all texts match."""
    return bool(texts) and sum(map(bool, map(matches, texts))) >= _MOST * len(texts)
