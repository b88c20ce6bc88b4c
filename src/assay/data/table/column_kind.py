"""What the columns of a table hold, how dates are written, and what is predicted from what. No torch."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import datetime
from itertools import product
from typing import TYPE_CHECKING, Any, Literal, final, get_args

import numpy as np
import pandas as pd
from pandas.api.types import (
    is_bool_dtype,
    is_datetime64_any_dtype,
    is_float_dtype,
    is_numeric_dtype,
    is_timedelta64_dtype,
)

from assay.config.did_you_mean import did_you_mean
from assay.data.table.amount import (
    TIME,
    are_codes,
    find_amount,
    find_words,
    format_amount,
    is_amount,
    is_time,
    looks_like_amount,
    parse_amounts,
    parse_times,
    split_amount,
)
from assay.data.table.leak import find_hints, find_leak
from assay.data.table.ngrams import learn_ngrams
from assay.errors import DataError
from assay.quoting import format_override, join_first
from assay.task.multitask import Multitask
from assay.task.task_of import infer_task

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

    from assay.data.core.types import Floats, Frame, Strings, Values


Kind = Literal[
    "number", "amount", "category", "date", "time", "duration", "id", "text", "empty", "nested"
]
FORMED = ("amount", "date", "time", "nested")
"""Kinds that are written in a form, which is learned or refused; see `find_form`."""

_FEW = 10
"""Different values that are never too many for categories."""
_MANY = 50
_MOST_EMBEDDED = 40
"""Different texts that are never too many for categories without a look at what they share."""
_ROWS_OF_CODE = 4
_FEWEST_TEXTS = 100
_ADDRESS = re.compile(r"\S+@\S+|https?://\S+")
_DIGITS = re.compile(r"\d+")
_ROWS_OF_TEXT = 20
"""Of a text on average, below which its n-grams tell more than itself."""
_ROWS_OF_ONE = 10
"""Different texts, and rows of one of them on average, that rather tell who than what."""
_ID_NAME = re.compile(
    r"(?i:(^|[_\W])(id|uuid|guid|nr\.?)$|^(index|idx|row|rowid|row_?number)$|^unnamed: \d+$)|[a-z]I[dD]$"
)
_CODE_NAME = re.compile(r"(?i:(^|[_\W])(code|zip|postcode|plz)$)|[a-z]Code$")
_ENTITY_NAME = re.compile(
    r"^(account|author|client|customer|device|family|household|machine|member|participant|patient|person"
    r"|player|speaker|student|subject|user)s?([_ -]?(code|key|nr|no|num|number))?$",
    re.I,
)
_PERIOD_NAME = re.compile(r"^(year|quarter|month|week|day|period)$", re.I)
_YEAR_MONTH = re.compile(r"\d{4}-(0[1-9]|1[0-2])")
_BIRTH_NAME = re.compile(r"birth|born|dob", re.I)
_TIME_NAME = re.compile(
    r"(^|[_\W])(date|datum|time|timestamp|created|updated)([_\W]|$)|(^|_)ts$|_(at|on)$", re.I
)
_MONTHS = r"(jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]*\.?"
_DAY_OR_MONTH = r"(0?[1-9]|[12]\d|3[01])"
_DATE = re.compile(
    rf"{_DAY_OR_MONTH}[-/.]{_DAY_OR_MONTH}[-/.](\d\d|[12]\d{{3}})([ T].*)?"
    rf"|[12]\d{{3}}[-/.]{_DAY_OR_MONTH}[-/.]{_DAY_OR_MONTH}([ T].*)?"
    rf"|(\w+,? )?\d{{1,2}}[ .-]+{_MONTHS}[ .,-]+\d{{2,4}}.*|(\w+,? )?{_MONTHS} \d{{1,2}},? \d{{4}}.*",
    re.I,
)
_VERSION_NAME = re.compile(r"version|(^|[_\W])ver$", re.I)
_MOST = 0.9
"""Of different texts that are dates or times in a column of such."""
_SIGNS = re.compile(r"[^\w\s]+")
_SENTINEL = re.compile(
    r"-?9{2,}(\.9+)?|-[1-9]|-?1?0{4,}|-?\d(\.\d+)?e\+\d+|3276[78]|-3276[78]|65535|-?214748364[78]"
)
_MOST_UNITS = 3
"""Of amounts; 1st, 2nd, 3rd and 4th have more."""
_SAMPLE = 1000
_SEVERAL = 4
"""Other values beside -1 from which on it may stand for a missing one; signs of -1, 0 and 1 do not."""
_DENSE = 1.25
"""Between the first and the last row's number, where some rows were left out."""
_EPOCH_SECONDS = (10**8, 10**13)


def kind_of(column: Values) -> tuple[Kind, str]:
    """What a column holds, and in words why it cannot be predicted from as it is; no words where it can."""
    # What a model learns from ids, free text and empty columns holds for the rows it has seen alone. Text
    # that looks like numbers is unclear: as categories the numbers would be lost.
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
        names_rows = kind == "id" or "e-mail" in why or bool(_ENTITY_NAME.match(name))
        names_period = kind == "number" and bool(_PERIOD_NAME.match(name))
        if not (kind == "date" or is_words or names_rows or names_period):
            continue
        different = (column.astype(str) if column.dtype == object else column).unique()
        if len(different) < 2:
            continue
        months = pd.Series(different if is_words else []).astype(str).str.fullmatch(_YEAR_MONTH)
        if kind == "date" or (is_words and months.all()):
            if not _BIRTH_NAME.search(name):
                hints |= {name: "time"}
        elif names_period:
            periods.append(name)
        elif _FEW < len(different) < len(column) and (
            names_rows
            or (
                is_words
                and len(different) > _MANY
                and len(column) <= _ROWS_OF_ONE * len(different)
            )
        ):
            hints[name] = "group"
    return hints | dict.fromkeys(periods if "group" in hints.values() else [], "time")


def has_few(values: Values, most: int = _FEW) -> bool:
    """Whether a column has at most so many different values; most columns show it in their first rows."""
    return bool(values.head(_SAMPLE).nunique() <= most and values.nunique() <= most)


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


def find_sentinel(column: Values) -> str:
    """A number such as 999 or 1e30 far from all others, or the only one below 0; else empty.

    It is likely to stand for a missing value.
    """
    values = column.dropna()
    if not is_number(column) or is_bool_dtype(column) or values.empty:
        return ""
    for end in (values.min(), values.max()):
        text = str(end).removesuffix(".0")
        if not _SENTINEL.fullmatch(text):
            continue
        others = values[values != end]
        if len(values) - len(others) <= 2 or has_few(others, 1):
            continue
        is_alone = end < 0 <= others.min() and (end <= -10 or others.nunique() >= _SEVERAL)
        is_large = abs(end) >= 10
        if is_alone or (is_large and abs(others - end).min() > others.max() - others.min()):
            return text
    return ""


def find_sign(column: Values) -> str:
    """The only text of signs alone, such as `?`: likely a missing value; else empty."""
    different = [*map(str, column.dropna().unique())]
    signs = [text for text in different if _SIGNS.fullmatch(text.strip())]
    if len(signs) == 1 and len(different) > 2:
        return signs[0]
    return ""


def _kind_of_numbers(name: str, values: Values) -> tuple[Kind, str]:
    if is_bool_dtype(values) or has_few(values) or (values.head(_SAMPLE) % 1 > 0).any():
        return "number", ""
    numbers = values.to_numpy(dtype=np.float64)
    if not np.isfinite(numbers).all() or (numbers != np.floor(numbers)).any():
        return "number", ""
    different = len(np.unique(numbers))
    low = int(numbers.min())
    high = int(numbers.max())
    if _ID_NAME.search(name):
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
    if _most_are(_DATE.fullmatch, sample) and not _VERSION_NAME.search(name):
        return "date", f"dates {example}"
    if _most_are(is_time, sample):
        return "time", f"times of day {example}"
    amounts = [text for text in sample if looks_like_amount(text)]
    words = [text for text in sample if not looks_like_amount(text)]
    few = len(unique) <= _FEW
    is_amount = len(amounts) > 0.8 * len(sample) or (
        len(amounts) > 1 and all(map(_SIGNS.fullmatch, words))
    )
    units = {amount[1] for text in amounts if (amount := split_amount(text))}
    is_amount &= not are_codes(amounts) and len(units) <= _MOST_UNITS
    if (
        is_amount
        and (not few or units != {""} or words)
        and not (units == {""} and _ID_NAME.search(name))
    ):
        return "amount", f"numbers {example}"
    if few:
        return ("category", "")
    return _kind_of_words(name, values, unique, sample)


def _kind_of_words(
    name: str, values: Values, unique: NDArray[Any], sample: list[str]
) -> tuple[Kind, str]:
    example = f"such as {sample[0][:40]!r}"
    if _ID_NAME.search(name):
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


def _most_are(matches: Callable[[str], Any], texts: list[str]) -> bool:
    return sum(map(bool, map(matches, texts))) >= _MOST * len(texts)


Part = Literal[
    "year",
    "month",
    "day_of_year",
    "day_of_week",
    "hour",
    "year_sine",
    "year_cosine",
    "week_sine",
    "week_cosine",
    "elapsed",
    "hours",
    "sine",
    "cosine",
]
PARTS: tuple[Part, ...] = get_args(Part)[:10]
"""As pandas calls them, Monday is 0; sine and cosine are of the share of the year, or of the week, that has
passed; `elapsed` is in days since the first date of the training rows."""
TIME_PARTS: tuple[Part, ...] = ("hours", "sine", "cosine")
"""Of a time of day: hours since midnight, and sine and cosine of the share of the day that has passed."""
_HALF_YEAR = dict.fromkeys(("day_of_year", "year_sine", "year_cosine"), 183.0)
_LEAST_SPANS = _HALF_YEAR | {"week_sine": 3.5, "week_cosine": 3.5}
"""Days that dates have to span: of less than half of a cycle they do not tell how it goes on."""
ISO = "ISO8601"
_ISO_DAY = r"\s*\d{4}[-/]\d{2}[-/]\d{2}"
_ISO_DATE = r"\d{4}"
_DAY = np.timedelta64(1, "D")
_EPOCH = np.datetime64("1970-01-01")
_DAYS = (
    *(
        "%d.%m.%Y",
        "%d.%m.%y",
        "%d/%m/%Y",
        "%m/%d/%Y",
        "%d/%m/%y",
        "%m/%d/%y",
        "%d-%m-%Y",
        "%m-%d-%Y",
    ),
    *(
        "%d %b %Y",
        "%d %B %Y",
        "%d-%b-%Y",
        "%d-%b-%y",
        "%b %d, %Y",
        "%B %d, %Y",
        "%b %d %Y",
        "%B %d %Y",
    ),
    *("%a, %d %b %Y", "%a %d %b %Y", "%d. %B %Y"),
)
_TIMES = ("", " %H:%M", " %H:%M:%S", " %H:%M:%S.%f", "T%H:%M:%S", " %I:%M %p", " %I:%M:%S %p")
_MILLISECONDS = 10**11
"""Points in time from here on are no seconds: the year 5138."""


def find_form(column: Values, kind: str, day_first: bool | None = None) -> str:
    """How the values of a column are written, which is one of `FORMED`."""
    if kind == "nested":
        raise DataError(
            f"the column {column.name!r} cannot be predicted from: it holds {kind_of(column)[1]}"
        )
    if kind == "amount":
        return find_amount(column)
    if kind == "date":
        return find_format(column, day_first)
    if len(wrong := column[column.notna() & parse_times(column).isna()]):
        raise DataError(
            f"the column {column.name!r} holds times of day, but also {str(wrong.iloc[0])[:40]!r}",
            hint="write them as 13:08 or 1:08 PM",
        )
    return TIME


def find_format(column: Values, day_first: bool | None = None) -> str:
    """How dates are written: `ISO8601`, formats of `strptime` with `|` between, or the unit `s` or `ms`."""
    values = pd.Series(column.dropna().unique())
    if column.dtype.kind == "M":
        return ISO
    if is_number(column):
        if values.max() < 10**8:
            return "%Y%m%d"
        if values.max() < _MILLISECONDS:
            return "s"
        return "ms"
    texts = values.astype(str).str.strip()
    # beside any other form
    texts = texts[~texts.str.match(_ISO_DATE) | _parse_dates(texts, ISO).isna()]
    if texts.empty:
        return ISO
    forms = [
        form
        for form in map("".join, product(_DAYS, _TIMES))
        if _matches_format(texts.iloc[0], form)
    ]
    odd = {form: texts[_parse_dates(texts, form).isna()] for form in forms}
    chosen = [
        form for form in forms if not len(odd[form]) and day_first in (None, _has_day_first(form))
    ]
    if not chosen:
        chosen = _find_mixed(texts, str(column.name), day_first)
    if len({_has_day_first(form) for form in chosen}) > 1 or (
        "|" in chosen[0] and len(chosen) > 1
    ):
        raise DataError(
            f"cannot tell whether the day or the month comes first in the dates of the column "
            f"{column.name!r}, such as {texts.iloc[0]!r}",
            hint="data.source.day_first=true, or data.source.day_first=false",
        )
    return chosen[0]


def _find_mixed(texts: Values, name: str, day_first: bool | None) -> list[str]:
    """Formats, joined by `|`, of which each text is written in one; a second one if days may be months."""
    orders = [day_first]
    if day_first is None:
        orders = [True, False]
    mixed = []
    failed = []
    for order in orders:
        rest = texts
        chain: list[str] = []
        while len(rest):
            left = {
                form: rest[_parse_dates(rest, form).isna()]
                for form in map("".join, product(_DAYS, _TIMES))
                if (order == _has_day_first(form) or _has_one_order(form))
                and _matches_format(rest.iloc[0], form)
            }
            if not left:
                failed.append(rest)
                break
            chain.append(min(left, key=lambda form: len(left[form])))
            rest = left[chain[-1]]
        else:
            mixed.append("|".join(chain))
    if not mixed:
        raise DataError(
            f"the dates in the column {name!r} are not all in a known format: "
            f"{str(min(failed, key=len).iloc[0])[:40]!r}",
            hint="write them as 2024-12-31",
        )
    return [*dict.fromkeys(mixed)]


def _has_one_order(form: str) -> bool:
    """Whether nobody takes its month for a day."""
    return "%m" not in form or form.startswith("%d.")


def _matches_format(text: str, form: str) -> bool:
    """As `_parse_dates` says of a column, which takes a hundred times as long."""
    try:
        return bool(datetime.strptime(text, form))
    except ValueError:
        return False


def _has_day_first(form: str) -> bool:
    return "%m" not in form or form.index("%d") < form.index("%m")


def parse_dates(column: Values, form: str) -> Values:
    """Points in time without a zone, in UTC where they have one; NaT for what cannot be read."""
    if form == TIME and column.dtype.kind != "M":
        return parse_times(column)
    dates = _parse_dates(column, form.partition("|")[0])
    for other in form.split("|")[1:]:
        dates = dates.fillna(_parse_dates(column, other))
    if form.startswith("%") and (dates.isna() & column.notna()).any():
        iso = column.where(column.astype(str).str.match(_ISO_DAY))
        dates = dates.fillna(_parse_dates(iso.astype(object), ISO))
    return dates


def _parse_dates(column: Values, form: str) -> Values:
    """As `parse_dates`; NaT for what is not written in the format."""
    if column.dtype.kind == "M":
        return pd.to_datetime(column, utc=True).dt.tz_localize(None)
    options: dict[str, Any] = {"unit": form}
    places, different = pd.factorize(column)
    if form in ("s", "ms"):
        values = pd.to_numeric(pd.Series(different), errors="coerce").astype(np.float64)
    else:
        # Numbers among texts are no dates, though 20240105 reads as one; alone they may be.
        masked = (int, float) if form != "%Y%m%d" else ()
        values = pd.Series(
            [
                None if isinstance(value, masked) else as_text(value).strip()
                for value in different
            ],
            dtype=object,
        )
        options = {"format": form}
    parsed = pd.to_datetime(values, utc=True, errors="coerce", **options)
    dates = parsed.dt.tz_localize(None).astype("datetime64[us]").reindex(places)
    return dates.set_axis(column.index)


def as_text(value: Any) -> str:
    """A value as text; 1.0 is 1, for a column of integers with a gap is one of floats."""
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value)


def days_since_1970(dates: Values) -> Floats:
    """Days with their fractions, NaN for a missing date."""
    return np.asarray((dates.to_numpy() - _EPOCH) / _DAY, dtype=np.float64)


def date_parts(days: Floats, parts: Strings, start: float) -> Floats:
    """The numbers that a model sees of dates, `[N, len(parts)]`; NaN for a missing date."""
    if not parts:
        return days[:, None]
    dates = pd.to_datetime(pd.Series(np.round(days * 86_400e6)).astype("Int64"), unit="us").dt
    return np.column_stack([_date_part(days, dates, part, start) for part in parts]).astype(float)


def _date_part(days: Floats, dates: Any, part: str, start: float) -> Any:
    if part == "elapsed":
        return days - start
    if part == "hours":
        return days % 1 * 24
    cycle, _, wave = part.rpartition("_")
    if wave not in ("sine", "cosine"):
        return getattr(dates, part)
    passed = days % 1
    if cycle == "year":
        passed = (dates.day_of_year - 1 + passed) / (365 + dates.is_leap_year)
    elif cycle == "week":
        passed = (dates.day_of_week + passed) / 7
    if wave == "sine":
        return np.sin(2 * np.pi * passed)
    return np.cos(2 * np.pi * passed)


def varying_parts(days: Floats, parts: tuple[Part, ...]) -> tuple[Part, ...]:
    """The parts that vary: of the others a model learns nothing, and a new value would lead it astray."""
    values = date_parts(days, parts, 0.0)
    varying = [
        part
        for place, part in enumerate(parts)
        if len(np.unique(values[:, place])) > 1 and np.ptp(days) >= _LEAST_SPANS.get(part, 0.0)
    ]
    return tuple(varying) or parts[-1:]


def check_columns(frame: Frame, names: Strings, path: str, option: str) -> None:
    """Refuse names of columns that a table does not have."""
    known = list(frame.columns)
    if missing := [name for name in names if name not in known]:
        if option.startswith("data."):
            key = option
        else:
            key = f"data.source.{option}"
        raise DataError(
            f"{key}: {path} has no column {missing[0]!r}{did_you_mean(missing[0], known, '; ')}",
            hint=f"columns: {', '.join(known[:20])}{', …' * (len(known) > 20)}",
        )


_FEW_CLASSES = 20
_MOST_CLASSES = 100
_FEW_SAMPLES = 10
"""Of a class on average, below which so many classes are more than make sense."""


def drop_missing_targets(frame: Frame, targets: Strings) -> Frame:
    """The rows that have all targets, with their index; integers that gaps made floats are such again."""
    complete = frame.dropna(subset=list(targets))
    for name in targets:
        if len(complete) < len(frame) and frame[name].isna().any():
            values = complete[name].infer_objects()
            is_integral = is_float_dtype(values) and bool((values == np.floor(values)).all())
            if is_integral and np.isfinite(values).all():
                complete[name] = values.astype(np.int64)
            else:
                complete[name] = values
    return complete


def task_of_columns(frame: Frame, targets: Strings) -> tuple[str, str]:
    """The task of the target columns, and a note where it is ambiguous."""
    frame = drop_missing_targets(frame, targets)
    parse_targets(frame, targets, {})
    judged = [is_real(frame[name], name) for name in targets]
    real = bool(judged) and all(is_number for is_number, _ in judged)
    if len(targets) > 1 and not real and not frame[list(targets)].isin([0, 1]).to_numpy().all():
        return Multitask.name, ""
    notes = "; ".join(note for _, note in judged if note)
    num_classes = 0
    if len(targets) == 1 and not real:
        num_classes = int(frame[targets[0]].nunique())
    return infer_task(is_real=real, num_columns=len(targets), num_classes=num_classes), notes


def parse_targets(frame: Frame, targets: Strings, forms: dict[str, str]) -> list[str]:
    """Replace the targets that are amounts by numbers, whose forms are added; the notes on them."""
    notes = []
    for name in targets:
        column = frame[name]
        is_class = is_number(column) or is_category(column)
        if name not in forms and not is_class and kind_of(column)[0] == "amount":
            forms[name] = find_amount(column)
        if name in forms and not is_number(column):
            numbers = parse_amounts(column, forms[name])
            if len(wrong := column[column.notna() & numbers.isna()]):
                raise DataError(
                    f"data.source.target={name}: expected a number such as "
                    f"{format_amount(12.5, forms[name])!r}, got {str(wrong.iloc[0])[:40]!r}",
                    hint="write all of them in one way",
                )
            notes.append(f"the target {describe_amount(column, forms[name])} is read as numbers")
            frame[name] = numbers
    return notes


def describe_amount(column: Values, form: str) -> str:
    """How a column of amounts is read, by an example."""
    example = column.dropna().iloc[:1]
    value = float(parse_amounts(example, form).iloc[0])
    return f"{column.name} ({str(example.iloc[0])[:40]!r} is {value:.15g})"


def is_real(values: Values, name: str) -> tuple[bool, str]:
    """Whether a target is predicted as a number, and a note where that is ambiguous."""
    if is_nested(values):
        raise DataError(f"data.source.target={name}: the column holds {kind_of(values)[1]}")
    different = values.nunique()
    if not is_number(values):
        if not is_category(values):  # else the file says that these are classes
            _check_classes(values, name, different)
        return False, _note_on_spelling(values, name)
    is_float = is_float_dtype(values)
    note = (
        f"the target {name!r} has {different:,} different {'values' if is_float else 'integers'} and is "
        "predicted as a number; for classes: data.source.task=multiclass"
    )
    if is_float:
        return True, note if 1 < different <= _FEW and bool(
            (values == np.floor(values)).all()
        ) else ""
    if is_bool_dtype(values) or different <= 2:
        return False, ""
    # such a class cannot be in all subsets: these may be counts
    is_rare = values.value_counts().min() < 3
    if different <= _FEW_CLASSES and not is_rare:
        return False, ""
    if different <= _FEW_CLASSES or len(values) / different >= _FEW_CLASSES:
        raise DataError(
            f"data.source.target={name}: {different:,} different integers in {len(values):,} rows may be "
            "numbers or classes",
            hint="data.source.task=regression, or data.source.task=multiclass",
        )
    return True, note


def _note_on_spelling(values: Values, name: str, what: str = "classes") -> str:
    texts = pd.Series(values.dropna().unique(), dtype=object).astype(str)
    for _, alike in texts.groupby(texts.str.strip().str.casefold(), sort=False):
        if len(alike) > 1:
            return (
                f"{what} of {name!r} differ only in case or spaces: {', '.join(map(repr, alike))}"
            )
    return ""


def _check_classes(values: Values, name: str, different: int) -> None:
    kind, why = kind_of(values)
    example = ""
    if len(values):
        example = str(values.iloc[0])[:40]
    key = f"data.source.target={name}"
    if kind in FORMED:
        raise DataError(f"{key}: the column holds {why}", hint="turn it into numbers or classes")
    if different > _FEW_CLASSES and 2 * different > len(values):
        raise DataError(
            f"{key}: {different:,} different texts in {len(values):,} rows, such as {example!r}, are not "
            "classes",
            hint="choose another column",
        )
    if different > _MOST_CLASSES and different * _FEW_SAMPLES > len(values):
        raise DataError(
            f"{key}: {different:,} classes in {len(values):,} rows, fewer than {_FEW_SAMPLES} rows a class",
            hint="choose another column; data.source.task=multiclass uses them anyway",
        )


_NAMED = 10
"""Words in a sentence."""


@final
@dataclass(frozen=True)
class ColumnOptions:
    """Column options of a config; see `assay.data.table.table.Table`."""

    targets: list[str]
    features: Strings | None = None
    exclude: Strings = ()
    keep: Strings = ()
    categories: Strings = ()
    na_values: Strings = ()
    day_first: bool | None = None


@final
@dataclass
class Features:
    """The chosen features, with the reasons."""

    names: list[str]
    forms: dict[str, str] = field(default_factory=dict)
    ngrams: list[str] = field(default_factory=list)
    """Texts that are encoded by their character n-grams."""
    notes: list[str] = field(default_factory=list)
    kinds: dict[str, tuple[Any, str]] = field(default_factory=dict)


def find_codes(frame: Frame, asked: ColumnOptions) -> list[str]:
    """Integers that are codes by their name, with several rows of each, to be taken as categories."""
    typed = (*asked.targets, *(asked.features or ()), *asked.keep, *asked.categories)
    codes = []
    for name in frame.columns:
        if name in typed or frame[name].dtype.kind not in "iu" or not _CODE_NAME.search(name):
            continue
        different = frame[name].nunique()
        if different > _FEW and _ROWS_OF_CODE * different <= len(frame):
            codes.append(name)
    return codes


def choose_features(
    frame: Frame, options: ColumnOptions, path: str, problems: Sequence[DataError] = ()
) -> Features:
    """Choose the feature columns by what each column holds; what is wrong is told beside other problems."""
    for option in ("features", "exclude", "keep", "categories"):
        names = getattr(options, option) or []
        check_columns(frame, names, path, option)
        if both := [name for name in names if name in options.targets]:
            raise DataError(
                f"data.source.{option}: {both[0]!r} is the target",
                hint=f"leave it out of {option}",
            )
    named = frame.columns if options.features is None else options.features
    chosen = Features(
        [name for name in named if name not in (*options.targets, *options.exclude)]
    )
    chosen.kinds = {
        name: kind_of(frame[name])
        for name in chosen.names
        if name not in options.categories or is_nested(frame[name])
    }
    _find_texts(frame, options, chosen)
    if options.features is None:
        _leave_out_unfit(frame, options, chosen)
    problems = [*problems, *_find_forms(frame, options, chosen, bool(problems))]
    chosen.names = [name for name in chosen.names if chosen.kinds.get(name, ("",))[0] != "nested"]
    if not chosen.names and not problems:
        why = ""
        if chosen.notes:
            why = f" ({'; '.join(chosen.notes)})"
        raise DataError(
            f"data.source.features: no column is left to predict from{why}",
            hint="add a column, or keep one: data.source.keep=[NAME]",
        )
    numbers = {
        name: parse_amounts(frame[name], form)
        for name, form in chosen.forms.items()
        if is_amount(form)
    }
    parsed = frame.assign(**numbers)
    problems += _check_leaks(parsed, options, chosen)
    if problems:
        told = "; ".join(
            filter(None, [problem.message.removeprefix("data: ") for problem in problems])
        )
        prefix = "data: "
        if told.startswith("data."):
            prefix = ""
        hints = dict.fromkeys(problem.hint for problem in problems if problem.hint)
        raise DataError(prefix + told, hint="; ".join(hints))
    _note_forms(frame, options, chosen)
    _add_notes(parsed, options, chosen)
    return chosen


def _find_forms(
    frame: Frame, asked: ColumnOptions, chosen: Features, is_target_wrong: bool
) -> list[DataError]:
    """Learn how amounts, dates and times are written; the columns that are not written in one way."""
    failed: dict[str, DataError] = {}
    amounts: list[str] = []
    words: list[str] = []
    for name in asked.targets if is_target_wrong else ():
        if kind_of(frame[name])[0] == "amount":
            words += find_words(frame[name])
    for name in chosen.names:
        kind = chosen.kinds.get(name, ("category",))[0]
        try:
            if kind in FORMED:
                chosen.forms[name] = find_form(frame[name], kind, asked.day_first)
        except DataError as error:
            if kind == "amount":
                if name in asked.keep or asked.features is not None:
                    continue  # a category
                amounts.append(name)
            if kind != "nested":
                words += find_words(frame[name])
            failed[name] = error
    hints = []
    if words:
        missing = _override(asked, "na_values", *dict.fromkeys(words[:_NAMED]))
        hints.append(f"{missing} where that means a missing value")
    if not failed:
        return [DataError("", hint=hint) for hint in hints]
    ways = f"{_override(asked, 'exclude', *failed)} leaves {'it' if len(failed) == 1 else 'them'} out"
    if amounts:
        them = "them"
        if len(amounts) == 1:
            them = "it"
        ways += f", {_override(asked, 'keep', *amounts)} takes {them} as categories"
    return [*failed.values(), *(DataError("", hint=hint) for hint in (*hints, ways))]


def _find_texts(frame: Frame, asked: ColumnOptions, chosen: Features) -> None:
    """Choose the texts that are too many for categories, and share n-grams with one another."""
    for name, (kind, _) in chosen.kinds.items():
        column = frame[name].dropna()
        names_rows = kind == "id" and (_ID_NAME.search(name) or _ENTITY_NAME.match(name))
        is_text_of_words = is_text(column) and kind in ("category", "id", "text")
        if name in asked.keep or names_rows or not is_text_of_words:
            continue
        if len(column) < _FEWEST_TEXTS or has_few(column, _MOST_EMBEDDED):
            continue
        different = [str(text) for text in column.unique()]
        is_rare = len(column) < _ROWS_OF_TEXT * len(different)
        if is_rare and not _are_numbered(different) and learn_ngrams(different):
            chosen.ngrams.append(name)


def _are_numbered(texts: list[str]) -> bool:
    """Whether texts are addresses, or differ in their digits alone: they say who, not what."""
    if _most_are(_ADDRESS.fullmatch, texts[:_SAMPLE]):
        return True
    return len({_DIGITS.sub("", text) for text in texts}) <= _FEW


def _leave_out_unfit(frame: Frame, asked: ColumnOptions, chosen: Features) -> None:
    left_out: dict[str, str] = {}
    for name, (kind, why) in chosen.kinds.items():
        if name in asked.keep or kind == "nested" or name in chosen.ngrams:
            continue
        if len(frame) > 1 and has_few(frame[name], 1) and frame[name].notna().any():
            left_out[name] = "one value in all rows"
        elif why and kind not in FORMED:
            left_out[name] = why
    if left_out:
        reasons = "; ".join(f"{name} ({why})" for name, why in left_out.items())
        keep = ""
        if able := [name for name in left_out if not frame[name].isna().all()]:
            keep = f"; to use one: {_override(asked, 'keep', able[0])}"
        if texts := [name for name in left_out if chosen.kinds[name][0] == "text"]:
            keep += f"; to learn from texts: data=text_table {format_override('data.source.text', texts[0])}"
        chosen.notes.append(f"left out of the features: {reasons}{keep}")
        chosen.names = [name for name in chosen.names if name not in left_out]


def _note_forms(frame: Frame, asked: ColumnOptions, chosen: Features) -> None:
    forms = chosen.forms
    if texts := [name for name in chosen.ngrams if name in chosen.names]:
        examples = join_first(
            [f"{name} such as {str(frame[name].dropna().iloc[0])[:40]!r}" for name in texts]
        )
        chosen.notes.append(
            f"texts become up to 30 numbers by their character n-grams, which an ONNX file cannot hold: "
            f"{examples}; without: {_override(asked, 'exclude', *texts)}"
        )
    if amounts := [name for name, form in forms.items() if is_amount(form)]:
        examples = join_first([describe_amount(frame[name], forms[name]) for name in amounts])
        other = _override(asked, "categories", amounts[0])
        chosen.notes.append(f"read as numbers: {examples}; as categories: {other}")
    if times := [name for name, form in forms.items() if form == TIME]:
        examples = join_first(
            [f"{name} such as {str(frame[name].dropna().iloc[0])!r}" for name in times]
        )
        chosen.notes.append(f"times of day become hours, their sine and their cosine: {examples}")
    if dates := {name: form for name, form in forms.items() if name not in (*amounts, *times)}:
        dates_shown = []
        for name, form in dates.items():
            written = ""
            if "%" in form:
                written = f" ({form.replace('|', ' or ')})"
            dates_shown.append(
                f"{name} such as {str(frame[name].dropna().iloc[0])[:40]!r}{written}"
            )
        days = [days_since_1970(parse_dates(frame[name], form)) for name, form in dates.items()]
        hour = ""
        if (np.concatenate(days) % 1 > 0).any():
            hour = ", hour"
        chosen.notes.append(
            f"dates become year, month, day of the year, weekday{hour}, sine and cosine of the year and of "
            f"the week, and days since the first, those that vary: {join_first(dates_shown)}"
        )


def _add_notes(frame: Frame, asked: ColumnOptions, chosen: Features) -> None:
    texts = [
        name for name in chosen.names if chosen.kinds.get(name, ("category",))[0] == "category"
    ]
    chosen.notes += filter(
        None, [_note_on_spelling(frame[name], name, "categories") for name in texts]
    )
    numeric = [name for name in (*chosen.names, *asked.targets) if name not in asked.categories]
    if padded := [name for name in texts if _has_zeros(frame[name])]:
        chosen.notes.append(
            f"codes that begin with 0 are taken as categories: {join_first(padded)}"
        )
    codes = {name: find_sentinel(frame[name]) for name in numeric}
    codes |= {name: find_sign(frame[name]) for name in texts}
    if codes := {name: code for name, code in codes.items() if code}:
        counts = [
            f"{name} ({code}, {(frame[name].astype(str).str.removesuffix('.0') == code).sum():,} times)"
            for name, code in codes.items()
        ]
        option = _override(asked, "na_values", *sorted({*codes.values()}))
        option = re.sub(r'"(-?[\d.]+(e\+\d+)?)"', r"\1", option)  # numbers need no quotes
        chosen.notes.append(
            f"possible codes of missing values: {join_first(counts)}; where they mean that: {option}"
        )
    few = [
        name
        for name in chosen.names
        if name in numeric
        and is_number(frame[name])
        and has_few(frame[name])
        and frame[name].nunique() > 2
    ]
    if few := [name for name in few if (frame[name].dropna() % 1 == 0).all()]:
        values = join_first([f"{name} ({frame[name].nunique()} values)" for name in few])
        chosen.notes.append(
            f"integers with few values are taken as numbers: {values}; as categories: "
            f"{_override(asked, 'categories', few[0])}"
        )


def _has_zeros(column: Values) -> bool:
    """Whether a category begins with 0 and another digit."""
    return any(re.fullmatch(r"0\d+", str(value)) for value in column.dropna().unique())


def _check_leaks(frame: Frame, asked: ColumnOptions, chosen: Features) -> list[DataError]:
    """The columns that equal a target; notes on those that decide it in another way."""
    names = [name for name in chosen.names if name not in asked.keep]
    for target in asked.targets:
        if is_nested(frame[target]):
            continue
        name, how = find_leak(frame, names, target)
        given_away = f"the column {name!r} reveals the target {target!r}: {how}"
        if name and len(chosen.names) > 1:
            hint = f"{_override(asked, 'exclude', name)}; where it is known before the target: "
            return [DataError(given_away, hint=hint + _override(asked, "keep", name))]
        # nothing else to predict from: it cannot be a slip
        if name:
            chosen.notes += [given_away]
        if name:
            hints = {}
        else:
            hints = find_hints(frame, names, target)
        if hints:
            found = join_first([f"{name!r} ({how})" for name, how in hints.items()])
            chosen.notes.append(
                f"the target {target!r} can be read off {found}; where that is known only after the target: "
                + _override(asked, "exclude", *hints)
            )
    return []


def _override(asked: ColumnOptions, option: str, *columns: str) -> str:
    """The columns beside those that are named already: an override replaces the whole list."""
    return format_override(f"data.source.{option}", [*getattr(asked, option), *columns])
