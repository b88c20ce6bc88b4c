"""What a column of a table holds, how its dates are written, and what to predict from. No torch."""

from __future__ import annotations

import re
from datetime import datetime
from decimal import Decimal
from itertools import product
from typing import TYPE_CHECKING, Any, Final, Literal, get_args

import numpy as np
import pandas as pd

from assay.errors import DataError
from assay.quoting import override, reads_as_number

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray
    from pandas import Series


Kind = Literal["number", "category", "date", "duration", "id", "text", "empty", "unclear"]

_FEW = 10
"""Different values that are never too many for categories."""
_MANY, _ROWS_OF_ONE = 50, 10
"""Different texts, and rows of one of them on average, that rather tell who than what."""
_ID_NAME = re.compile(
    r"(^|[_\W])(id|uuid|guid|nr\.?)$|^(index|idx|row|rowid|row_?number)$|^unnamed: \d+$", re.I
)
_CAMEL_ID_NAME = re.compile(r"[a-z]I[dD]$")
_ENTITY_NAME = re.compile(
    r"^(account|author|client|customer|device|family|household|machine|member|participant|patient|person"
    r"|player|speaker|student|subject|user)s?([_ -]?(code|key|nr|no|num|number))?$",
    re.I,
)
_BIRTH_NAME = re.compile(r"birth|born|dob", re.I)
_TIME_NAME = re.compile(
    r"(^|[_\W])(date|datum|time|timestamp|created|updated)([_\W]|$)|(^|_)ts$|_(at|on)$", re.I
)
_MONTHS = r"(jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]*\.?"
_DATE = re.compile(
    rf"\d{{1,4}}[-/.]\d{{1,2}}[-/.]\d{{1,4}}([ T].*)?|(\w+,? )?\d{{1,2}}[ .-]+{_MONTHS}[ .,-]+\d{{2,4}}.*"
    rf"|(\w+,? )?{_MONTHS} \d{{1,2}},? \d{{4}}.*",
    re.I,
)
_NUMBER = re.compile(r"[-+]?[^\w\s.,+-]{0,3}\s*[-+]?\d[\d.,' \u00a0]*\s*(%|[^\w\s]{1,3}|[A-Za-z]{2,3})?")
_SAMPLE = 1000
_DENSE = 1.25
"""Between the first and the last row's number, where some rows were left out."""
_EPOCH_SECONDS = (10**8, 10**13)


def kind_of(column: Series[Any]) -> tuple[Kind, str]:
    """What a column holds, and in words why it cannot be predicted from as it is; no words where it can."""
    # What a model learns from ids, free text and empty columns holds for the rows it has seen alone. Text
    # that looks like numbers is unclear: as categories the numbers would be lost.
    values = column.dropna()
    if values.empty:
        return "empty", "no value in any row"
    if pd.api.types.is_datetime64_any_dtype(column):
        return "date", "dates"
    if pd.api.types.is_timedelta64_dtype(column) or isinstance(column.dtype, pd.PeriodDtype):
        return "duration", "durations or periods"
    if is_number(column):
        return _kind_of_numbers(str(column.name), values)
    return _kind_of_text(str(column.name), values.astype(str))


def split_hints(frame: pd.DataFrame, kinds: Mapping[str, tuple[Kind, str]]) -> dict[str, str]:
    """Columns that say which rows belong together (`group`), or from when a row is (`time`)."""
    hints = dict[str, str]()
    for name in frame.columns:
        column = frame[name].dropna()
        kind, _ = kinds.get(name) or kind_of(column)
        is_text = kind == "category" and not is_number(column)
        different = (column.astype(str) if column.dtype == object else column).unique()
        if kind == "date" and len(different) > 1 and not _BIRTH_NAME.search(name):
            hints[name] = "time"
        elif _FEW < len(different) < len(column) and (
            kind == "id"
            or _ENTITY_NAME.match(name)
            or (is_text and len(different) > _MANY and len(column) <= _ROWS_OF_ONE * len(different))
        ):
            hints[name] = "group"
    return hints


def is_number(column: Series[Any]) -> bool:
    """Whether a column holds numbers, or yes and no."""
    return bool(pd.api.types.is_numeric_dtype(column) or pd.api.types.is_bool_dtype(column))


def looks_like_number(text: str) -> bool:
    """Whether a text is a number with a sign of its unit or of thousands."""
    return _NUMBER.fullmatch(text.strip()) is not None


def to_numbers(*columns: Series[Any]) -> str:
    """What to do about text that looks like numbers.

    >>> to_numbers(pd.Series(["1", "unknown", None, "2", "n/k"]))
    "'data.source.na_values=[unknown,n/k]' where that means a missing value"
    """
    texts = list(dict.fromkeys(str(value).strip() for one in columns for value in one.dropna().unique()))
    if words := [text for text in texts if not looks_like_number(text)]:
        return f"{override('data.source.na_values', words[:_FEW])} where that means a missing value"
    decimal = override("data.source.decimal", ",")
    return f"remove signs of units and of thousands, or store numbers; {decimal} for a decimal comma"


def plain_numbers(frame: pd.DataFrame) -> pd.DataFrame:
    """Decimals as floats: Parquet and databases have columns of them."""
    for name in frame.columns:
        values = frame[name].dropna()
        if values.dtype == object and len(values) and all(isinstance(value, Decimal) for value in values):
            frame[name] = frame[name].astype(float)
    return frame


def _kind_of_numbers(name: str, values: Series[Any]) -> tuple[Kind, str]:
    if pd.api.types.is_bool_dtype(values) or values.nunique() <= _FEW:
        return "number", ""
    numbers = values.to_numpy(dtype=np.float64)
    if not np.isfinite(numbers).all() or (numbers != np.floor(numbers)).any():
        return "number", ""
    different, low, high = len(np.unique(numbers)), int(numbers.min()), int(numbers.max())
    if _ID_NAME.search(name) or _CAMEL_ID_NAME.search(name):
        return "id", f"ids by its name, {different:,} different integers"
    is_dense = (np.diff(numbers) > 0).all() and high - low < _DENSE * different
    if different == len(numbers) and (is_dense or high - low + 1 == different):
        return "id", f"the rows' numbers, {low} to {high}"
    if low >= 19000101 and high <= 21001231 and _are_days(numbers):
        return "date", f"dates such as {int(numbers[0])}"
    is_time = _TIME_NAME.search(name) and _EPOCH_SECONDS[0] <= low and high <= _EPOCH_SECONDS[1]
    return ("date", f"points in time such as {int(numbers[0])}") if is_time else ("number", "")


def _are_days(numbers: np.ndarray[Any, Any]) -> bool:
    month, day = numbers // 100 % 100, numbers % 100
    return bool(((month >= 1) & (month <= 12) & (day >= 1) & (day <= 31)).all())


def _kind_of_text(name: str, values: Series[Any]) -> tuple[Kind, str]:
    unique = values.unique()
    sample = [str(value).strip() for value in unique[:_SAMPLE]]
    example = f"such as {sample[0][:40]!r}"
    if all(_DATE.fullmatch(text) for text in sample):
        return "date", f"dates {example}"
    if len(unique) <= _FEW:
        return "category", ""
    if sum(map(looks_like_number, sample)) > 0.8 * len(sample):
        odd = next((text for text in sample if not reads_as_number(text)), sample[0])
        return "unclear", f"text such as {odd[:40]!r}, but looks like numbers"
    return _kind_of_words(name, sample, len(unique), len(values))


def _kind_of_words(name: str, sample: list[str], different: int, rows: int) -> tuple[Kind, str]:
    words = sum(len(text.split()) for text in sample) / len(sample)
    example = f"such as {sample[0][:40]!r}"
    if _ID_NAME.search(name) or _CAMEL_ID_NAME.search(name):
        return "id", f"ids by its name, {different:,} different values {example}"
    if 2 * different > rows:
        kind: Kind = "id" if words < 1.5 else "text"
        what = "ids or names" if kind == "id" else "free text"
        return kind, f"{what}: {different:,} different values in {rows:,} rows, {example}"
    return ("text", f"free text {example}") if words >= 5 else ("category", "")


Part = Literal["year", "month", "day_of_week", "hour", "elapsed"]
PARTS: Final = get_args(Part)
"""As pandas calls them, Monday is 0; `elapsed` is in days since the first date of the training rows."""
ISO: Final = "ISO8601"
_ISO_DAY: Final = r"\s*\d{4}-\d{2}-\d{2}"
_DAY: Final = np.timedelta64(1, "D")
_EPOCH: Final = np.datetime64("1970-01-01")
_DAYS: Final = (
    *("%d.%m.%Y", "%d.%m.%y", "%d/%m/%Y", "%m/%d/%Y", "%d/%m/%y", "%m/%d/%y", "%d-%m-%Y", "%m-%d-%Y"),
    *("%d %b %Y", "%d %B %Y", "%d-%b-%Y", "%d-%b-%y", "%b %d, %Y", "%B %d, %Y", "%b %d %Y", "%B %d %Y"),
    *("%a, %d %b %Y", "%a %d %b %Y", "%d. %B %Y"),
)
_TIMES: Final = ("", " %H:%M", " %H:%M:%S", " %H:%M:%S.%f", "T%H:%M:%S", " %I:%M %p", " %I:%M:%S %p")
_MILLISECONDS: Final = 10**11
"""Points in time from here on are no seconds: the year 5138."""


def find_format(column: pd.Series[Any], day_first: bool | None = None) -> str:
    """How the dates of a column are written: `ISO8601`, a format of `strptime`, or the unit `s` or `ms`."""
    values = pd.Series(column.dropna().unique())
    if column.dtype.kind == "M":
        return ISO
    if is_number(column):
        return "%Y%m%d" if values.max() < 10**8 else "s" if values.max() < _MILLISECONDS else "ms"
    texts = values.astype(str).str.strip()
    if texts.str.match(r"\d{4}").all() and not _as_written(texts, ISO).isna().any():
        return ISO
    forms = [form for form in map("".join, product(_DAYS, _TIMES)) if _fits(texts.iloc[0], form)]
    forms = [form for form in forms if not _as_written(texts, form).isna().any()]
    chosen = [form for form in forms if day_first is None or _has_day_first(form) == day_first]
    if not chosen:
        raise DataError(
            f"data: the dates in the column {column.name!r} are not all written in one known way, such as "
            f"{texts.iloc[0]!r}",
            hint="write them as 2024-12-31, or leave the column out: "
            + override("data.source.exclude", [str(column.name)]),
        )
    if len({_has_day_first(form) for form in chosen}) > 1:
        raise DataError(
            f"data: is the day or the month first in the dates of the column {column.name!r}, such as "
            f"{texts.iloc[0]!r}?",
            hint="data.source.day_first=true, or data.source.day_first=false",
        )
    return chosen[0]


def _fits(text: str, form: str) -> bool:
    """As `_as_written` says of a column, which takes a hundred times as long."""
    try:
        return bool(datetime.strptime(text, form))
    except ValueError:
        return False


def _has_day_first(form: str) -> bool:
    return "%m" not in form or form.index("%d") < form.index("%m")


def as_dates(column: pd.Series[Any], form: str) -> pd.Series[Any]:
    """Points in time without a zone, in UTC where they have one; NaT for what cannot be read."""
    dates = _as_written(column, form)
    if form.startswith("%") and (odd := dates.isna() & column.notna()).any():
        iso = column.where(odd & column.astype(str).str.match(_ISO_DAY))
        dates = dates.fillna(_as_written(iso.astype(object), ISO))
    return dates


def _as_written(column: pd.Series[Any], form: str) -> pd.Series[Any]:
    """As `as_dates`; NaT for what is not written in the format."""
    if column.dtype.kind == "M":
        return pd.to_datetime(column, utc=True).dt.tz_localize(None)
    given = column.notna()
    dates: pd.Series[Any]
    if form in ("s", "ms"):
        unit: Any = form
        numbers = pd.to_numeric(column.where(given), errors="coerce")
        dates = pd.to_datetime(numbers.astype(np.float64), unit=unit, utc=True, errors="coerce")
    else:
        # Numbers among texts would be taken for nanoseconds.
        texts = column.where(given, None).map(_as_text, na_action="ignore")
        dates = pd.to_datetime(texts.astype(object), format=form, utc=True, errors="coerce")
    dates = dates.dt.tz_localize(None).astype("datetime64[us]")
    return dates


def _as_text(value: Any) -> str:
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value).strip()


def days_since_1970(dates: pd.Series[Any]) -> NDArray[np.float64]:
    """Days with their fractions, NaN where there is no date."""
    return np.asarray((dates.to_numpy() - _EPOCH) / _DAY, dtype=np.float64)


def parts_of(days: NDArray[np.float64], parts: Sequence[str], start: float) -> NDArray[np.float64]:
    """The numbers that a model sees of dates, `[N, len(parts)]`; NaN where there is no date."""
    if not parts:
        return days[:, None]
    microseconds = pd.Series(np.round(days * 86_400e6)).astype("Int64")
    dates = pd.to_datetime(microseconds, unit="us").dt
    columns = [
        days - start
        if part == "elapsed"
        else getattr(dates, part).to_numpy(dtype=np.float64, na_value=np.nan)
        for part in parts
    ]
    return np.column_stack(columns)
