"""Dates in a table: how they are written, and the numbers that a model sees of them. Imports no torch."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pandas as pd

from assay.data.tabular.column_kind import is_number
from assay.errors import DataError
from assay.quoting import override

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

PARTS: Final = ("year", "month", "day_of_week", "hour", "elapsed")
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
_SAMPLE: Final = 50
_MILLISECONDS: Final = 10**11
"""Points in time from here on are no seconds: the year 5138."""


def find_format(column: pd.Series[Any], day_first: bool | None = None) -> str:
    """How the dates of a column are written: `ISO8601`, a format of `strptime`, or the unit `s` or `ms`.

    Args:
        column: Holds dates, see `assay.data.tabular.column_kind`.
        day_first: Of dates such as 05/01/2024, which alone do not tell; None: by those that do.

    Raises:
        DataError: They are written in several ways, or in one that can be read in two.
    """
    values = pd.Series(column.dropna().unique())
    if column.dtype.kind == "M":
        return ISO
    if is_number(column):
        return "%Y%m%d" if values.max() < 10**8 else "s" if values.max() < _MILLISECONDS else "ms"
    texts = values.astype(str).str.strip()
    if texts.str.match(r"\d{4}").all() and not _as_written(texts, ISO).isna().any():
        return ISO
    forms = [f"{day}{time}" for day, time in product(_DAYS, _TIMES)]
    for some in (texts.iloc[:_SAMPLE], texts):
        forms = [form for form in forms if not _as_written(some, form).isna().any()]
    chosen = [form for form in forms if day_first is None or _has_day_first(form) == day_first]
    if not chosen:
        raise DataError(
            f"data: the dates in the column {column.name!r} are not all written in one known way, such as "
            f"{texts.iloc[0]!r} and {_other(texts)!r}",
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


def _has_day_first(form: str) -> bool:
    return "%m" not in form or form.index("%d") < form.index("%m")


def _other(texts: pd.Series[Any]) -> str:
    """A text of another form than the first one's."""
    forms = texts.str.replace(r"\d", "0", regex=True)
    others = texts[forms != forms.iloc[0]]
    return str((others if len(others) else texts).iloc[0])


def has_times(column: pd.Series[Any], form: str) -> bool:
    """Whether dates may have a time of day, by how they are written.

    Args:
        column: Of dates.
        form: From `find_format`.
    """
    if column.dtype.kind == "M":
        return bool((column != column.dt.normalize()).any())
    if form == ISO:
        return bool(column.astype(str).str.contains(":").any())
    return form in ("s", "ms") or "%H" in form or "%I" in form


def as_dates(column: pd.Series[Any], form: str) -> pd.Series[Any]:
    """Points in time without a zone, in UTC where they have one; NaT for what cannot be read.

    Args:
        column: Of texts, numbers or dates.
        form: From `find_format`. A text such as 2024-12-31 is read beside it, as it has one meaning alone.
    """
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
    """Days with their fractions, NaN where there is no date.

    Args:
        dates: From `as_dates`.
    """
    return np.asarray((dates.to_numpy() - _EPOCH) / _DAY, dtype=np.float64)


def parts_of(days: NDArray[np.float64], parts: Sequence[str], start: float) -> NDArray[np.float64]:
    """The numbers that a model sees of dates, `[N, len(parts)]`; NaN where there is no date.

    Args:
        days: Since 1970, `[N]`.
        parts: Of `PARTS`; none: the days themselves.
        start: Days since 1970 from which `elapsed` counts.
    """
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
