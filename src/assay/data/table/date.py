"""Dates and times of day: how they are written, and what a model sees of them. No torch."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import date, datetime
from itertools import product
from typing import TYPE_CHECKING, Any, Literal, Self, final, get_args

import numpy as np
import pandas as pd
from typing_extensions import override

from assay.data.table.column import Column, as_text, is_number, measure, shorten
from assay.errors import DataError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from assay.data.core.types import Bools, Floats, Strings, Values
    from assay.data.table.column import JudgedRows

_MONTHS = r"(jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]*\.?"
_MONTH = r"(0?[1-9]|1[0-2])"
_DAY_OR_MONTH = r"(0?[1-9]|[12]\d|3[01])"
_DATE = re.compile(
    rf"{_DAY_OR_MONTH}[-/.]{_DAY_OR_MONTH}[-/.](\d\d|[12]\d{{3}})([ T].*)?"
    rf"|[12]\d{{3}}[-/.]{_DAY_OR_MONTH}[-/.]{_DAY_OR_MONTH}([ T].*)?"
    rf"|[12]\d{{3}}[-/]{_MONTH}|{_MONTH}[-/][12]\d{{3}}|{_MONTHS}[ -](\d\d|[12]\d{{3}})"
    rf"|(\w+,? )?\d{{1,2}}[ .-]+{_MONTHS}[ .,-]+\d{{2,4}}.*|(\w+,? )?{_MONTHS} \d{{1,2}},? \d{{4}}.*",
    re.I,
)
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
    "%d.%m.%Y|%d.%m.%y|%d/%m/%Y|%m/%d/%Y|%d/%m/%y|%m/%d/%y|%d-%m-%Y|%m-%d-%Y|%d %b %Y|%d %B %Y|%d-%b-%Y|"
    "%d-%b-%y|%b %d, %Y|%B %d, %Y|%b %d %Y|%B %d %Y|%a, %d %b %Y|%a %d %b %Y|%d. %B %Y"
)
_HOURS = "| %H:%M| %H:%M:%S| %H:%M:%S.%f|T%H:%M:%S| %I:%M %p| %I:%M:%S %p"
_OF_MONTHS = ("%Y/%m", "%m/%Y", "%m-%Y", "%b-%y", "%b %y", "%b-%Y", "%b %Y", "%B-%Y", "%B %Y")
_FORMATS = (*map("".join, product(_DAYS.split("|"), _HOURS.split("|"))), *_OF_MONTHS)
_MILLISECONDS = 10**11
"""Points in time from here on are no seconds: the year 5138."""

TIME = "time"
"""The form of times of day."""
_TIME = r"\s*(\d{1,2})(?::([0-5]\d))?(?::([0-5]\d(?:\.\d+)?))?\s*([ap]\.?m\.?)?\s*"
_TIME_TEXT = re.compile(
    r"\s*(([01]?\d|2[0-3]):[0-5]\d(:[0-5]\d(\.\d+)?)?|(0?[1-9]|1[0-2])(:[0-5]\d){0,2}\s*[ap]\.?m\.?)\s*",
    re.I,
)


@final
@dataclass(frozen=True)
class Date(Column):
    """Dates, of which a model sees the parts that vary, or times of day.

    Attributes:
        parts: What a model sees; empty: the days since 1970.
        start: The first date of the training rows, in days since 1970.
        form: How they are written, see `find_format`; `time`: times of day.
    """

    parts: tuple[Part, ...] = ()
    start: float = 0.0
    form: str = ISO

    @classmethod
    def learn(cls, cells: Values, form: str, *, impute: bool) -> Self:
        """Learn from training rows."""
        days = days_since_1970(parse_dates(cells, form))
        present = days[~np.isnan(days)]
        # a date that there is
        middle = 0.0
        start = 0.0
        if len(present):
            middle = float(np.quantile(present, 0.5, method="lower"))
            start = float(present.min())
        measured = measure(days, middle, impute=impute)
        parts = PARTS
        if form == TIME:
            parts = TIME_PARTS
            measured["span"] = None
        varying = varying_parts(present, parts)
        return cls(str(cells.name), **measured, parts=varying, start=start, form=form)

    @property
    def kind(self) -> str:
        """Its name in `encoder.json`, also of times."""
        return "date"

    @property
    def names(self) -> list[str]:
        """A part each."""
        return [f"{self.name}, {part}" for part in self.parts] or [self.name]

    @override
    def read(self, cells: Values, judged: JudgedRows, decimal: str) -> tuple[Values, Bools]:
        dates = parse_dates(cells, self.form)
        days = days_since_1970(dates)
        ends = [str(np.datetime64(int(end // 1), "D")) for end in self.span or ()]
        wanted = self._wanted()
        missing = self.judge_numbers(judged, cells, dates, days, wanted=wanted, ends=ends)
        return dates, missing

    def _wanted(self) -> str:
        if self.form == TIME:
            return "a time of day such as 13:08"
        examples = {ISO: "2024-12-31", "s": "1735603200", "ms": "1735603200000"}
        if self.form not in examples:
            return f"a date such as {date(2024, 12, 31).strftime(self.form.partition('|')[0])}"
        return f"a date such as {examples[self.form]}"

    @override
    def encode(self, values: Values) -> NDArray[Any]:
        parts = date_parts(days_since_1970(values), self.parts, self.start)
        parts[np.isnan(parts[:, 0])] = self.fills
        return parts

    @override
    def export_inputs(self, values: Values) -> NDArray[Any]:
        return date_parts(days_since_1970(values), self.parts or ("elapsed",), self.start)

    @property
    def fills(self) -> tuple[float, ...]:
        """What stands for a missing date, part by part."""
        fill = np.array([np.nan if self.fill is None else float(self.fill)])
        return tuple(date_parts(fill, self.parts, self.start)[0].tolist())

    @override
    def describe(self, na_values: Strings) -> list[dict[str, Any]]:
        (entry,) = super().describe(na_values)
        start = pd.Timestamp("1970-01-01") + pd.Timedelta(days=self.start)
        entry |= {"date": self.name, "format": self.form, "start": start.isoformat()}
        entries = []
        for part, fill in zip(self.parts or ("elapsed",), self.fills, strict=True):
            missing = None if self.fill is None else fill
            about_part = {"name": f"{self.name} ({part})", "part": part, "missing": missing}
            entries.append({**entry, **about_part})
        return entries

    @override
    def make_up(self, count: int) -> Any:
        days = np.linspace(*(self.span or (self.start, self.start + 1)), count)
        if self.form != TIME:
            days = days.round()
        return pd.to_datetime(days, unit="D")


_FAR = pd.Timedelta(days=5 * 365)
"""From all others: the first month of a year is far from the last two of the year before it."""


def find_stand_in(column: Values, dates: Values) -> str:
    """A first or last day of a year, such as 9999-12-31, farther from all other dates than these lie apart.

    It is likely to stand for a missing date. Empty where there is none; `dates` are those of the column.
    """
    present = dates.dropna()
    for end in (present.min(), present.max()):
        others = present[present != end]
        if len(present) - len(others) <= 2 or others.nunique() < 2:
            continue
        is_far = abs(others - end).min() > max(others.max() - others.min(), _FAR)
        if is_far and (end.month, end.day) in ((1, 1), (12, 31)):
            return str(column.astype(str)[dates == end].iloc[0])
    return ""


# -- how dates are written -----------------------------------------------------------------------------------


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
    orders = [True, False]
    if day_first is not None:
        orders = [day_first]
    chains = [_find_formats(texts, order) for order in orders]
    formats = [*dict.fromkeys("|".join(chain) for chain, unread in chains if unread.empty)]
    if not formats:
        unread = min((unread for _, unread in chains), key=len)
        raise DataError(
            f"the dates in the column {column.name!r} are not all in a known format: "
            f"{shorten(unread.iloc[0])}",
            hint="write them as 2024-12-31",
        )
    if len(formats) > 1:
        raise DataError(
            f"cannot tell whether the day or the month comes first in the dates of the column "
            f"{column.name!r}, such as {texts.iloc[0]!r}",
            hint="data.source.day_first=true, or data.source.day_first=false",
        )
    return formats[0]


def _find_formats(texts: Values, day_first: bool) -> tuple[list[str], Values]:
    """Formats of which each text is written in one, and the texts that are written in none."""
    chain: list[str] = []
    while len(texts):
        left = {
            form: texts[_parse_dates(texts, form).isna()]
            for form in _FORMATS
            if _fits_order(form, day_first) and _matches_format(texts.iloc[0], form)
        }
        if not left:
            break
        chain.append(min(left, key=lambda form: len(left[form])))
        texts = left[chain[-1]]
    return chain, texts


def is_date(text: str) -> bool:
    """Whether a text looks like a date.

    >>> is_date("2024-12-31"), is_date("31 Dec 24"), is_date("12.5.3")
    (True, True, False)
    """
    return _DATE.fullmatch(text) is not None


def _fits_order(form: str, day_first: bool) -> bool:
    """Whether a form has the day before the month or not, where one may be taken for the other."""
    if not ("%m" in form and "%d" in form) or form.startswith("%d."):
        return True
    return (form.find("%d") < form.find("%m")) == day_first


def _matches_format(text: str, form: str) -> bool:
    """As `_parse_dates` says of a column, which takes a hundred times as long."""
    try:
        return bool(datetime.strptime(text, form))
    except ValueError:
        return False


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


def is_time(text: str) -> bool:
    """Whether a text is a time of day.

    >>> is_time("13:08"), is_time("1:08 PM"), is_time("25:10")
    (True, True, False)
    """
    return _TIME_TEXT.fullmatch(text) is not None


def parse_times(column: Values) -> Values:
    """Times of day on the first of January 1970; NaT for anything else."""
    texts = (
        column.astype(object)
        .where(column.notna(), None)
        .map(str, na_action="ignore")
        .astype("string")
    )
    parts = texts.where(texts.str.fullmatch(_TIME_TEXT)).str.extract(_TIME, flags=re.I)
    hours, minutes, seconds = (pd.to_numeric(parts[at]).astype("Float64") for at in range(3))
    is_pm = parts[3].str.casefold().str.startswith("p")
    hours = hours.where(parts[3].isna(), hours % 12 + 12 * is_pm.astype("Float64"))
    total: NDArray[Any] = (hours * 3600 + minutes.fillna(0) * 60 + seconds.fillna(0)).to_numpy(
        dtype=np.float64, na_value=np.nan
    )
    return pd.Series(pd.to_datetime(total, unit="s"), index=column.index, name=column.name)


# -- what a model sees of them -------------------------------------------------------------------------------


def days_since_1970(dates: Values) -> Floats:
    """Days with their fractions, NaN for a missing date."""
    return np.asarray((dates.to_numpy() - _EPOCH) / _DAY, dtype=np.float64)


def date_parts(days: Floats, parts: Strings, start: float) -> Floats:
    """The numbers that a model sees of dates, `[N, len(parts)]`; NaN for a missing date."""
    if not parts:
        return days[:, None]
    places, different = pd.factorize(days, use_na_sentinel=False)
    dates = pd.to_datetime(
        pd.Series(np.round(different * 86_400e6)).astype("Int64"), unit="us"
    ).dt
    columns = [_date_part(different, dates, part, start) for part in parts]
    return np.column_stack(columns).astype(float)[places]


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
    values = date_parts(pd.unique(days), parts, 0.0)
    varying = [
        part
        for place, part in enumerate(parts)
        if len(np.unique(values[:, place])) > 1 and np.ptp(days) >= _LEAST_SPANS.get(part, 0.0)
    ]
    return tuple(varying) or parts[-1:]
