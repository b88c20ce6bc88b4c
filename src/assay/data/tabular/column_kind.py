"""What the columns of a table hold, how dates are written, and what is predicted from what. No torch."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import datetime
from itertools import product
from typing import TYPE_CHECKING, Any, Final, Literal, final, get_args

import numpy as np
import pandas as pd

from assay.config.did_you_mean import did_you_mean
from assay.errors import DataError
from assay.quoting import format_override, reads_as_number
from assay.task.multitask import Multitask
from assay.task.task_of import infer_task

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
    r"(?i:(^|[_\W])(id|uuid|guid|nr\.?)$|^(index|idx|row|rowid|row_?number)$|^unnamed: \d+$)|[a-z]I[dD]$"
)
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
_DATE = re.compile(
    rf"\d{{1,4}}[-/.]\d{{1,2}}[-/.]\d{{1,4}}([ T].*)?|(\w+,? )?\d{{1,2}}[ .-]+{_MONTHS}[ .,-]+\d{{2,4}}.*"
    rf"|(\w+,? )?{_MONTHS} \d{{1,2}},? \d{{4}}.*",
    re.I,
)
_NUMBER = re.compile(r"[-+]?[^\w\s.,+-]{0,3}\s*[-+]?\d[\d.,' \u00a0]*\s*(%|[^\w\s]{1,3}|[A-Za-z]{2,3})?")
_SENTINEL = re.compile(r"-?9{2,}")
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
    hints, periods = dict[str, str](), list[str]()
    for name in frame.columns:
        column = frame[name].dropna()
        kind, why = kinds.get(name) or kind_of(column)
        is_text = kind == "category" and not is_number(column)
        different = (column.astype(str) if column.dtype == object else column).unique()
        if len(different) < 2:
            continue
        if kind == "date" or (is_text and all(_YEAR_MONTH.fullmatch(str(value)) for value in different)):
            hints |= {} if _BIRTH_NAME.search(name) else {name: "time"}
        elif kind == "number" and _PERIOD_NAME.match(name):
            periods.append(name)
        elif _FEW < len(different) < len(column) and (
            kind == "id"
            or "e-mail" in why
            or _ENTITY_NAME.match(name)
            or (is_text and len(different) > _MANY and len(column) <= _ROWS_OF_ONE * len(different))
        ):
            hints[name] = "group"
    return hints | dict.fromkeys(periods if "group" in hints.values() else [], "time")


def is_number(column: Series[Any]) -> bool:
    """Whether a column holds numbers, or yes and no."""
    return bool(pd.api.types.is_numeric_dtype(column) or pd.api.types.is_bool_dtype(column))


def looks_like_number(text: str) -> bool:
    """Whether a text is a number with a sign of its unit or of thousands."""
    return _NUMBER.fullmatch(text.strip()) is not None


def to_numbers(*columns: Series[Any]) -> str:
    """A hint for text that looks like numbers.

    >>> to_numbers(pd.Series(["1", "unknown", None, "2", "n/k"]))
    "'data.source.na_values=[unknown,n/k]' where that means a missing value"
    """
    texts = list(
        dict.fromkeys(str(value).strip() for values in columns for value in values.dropna().unique())
    )
    if words := [text for text in texts if not looks_like_number(text)]:
        return f"{format_override('data.source.na_values', words[:_FEW])} where that means a missing value"
    sign, name = (",", "comma") if any("," in text for text in texts) else (".", "point")
    decimal = format_override("data.source.decimal", sign)
    return f"remove signs of units and of thousands, or store numbers; {decimal} for a decimal {name}"


def find_sentinel(column: Series[Any]) -> str:
    """A number of nines, far from all others or the only one below 0: likely a missing value; else empty."""
    values = column.dropna()
    if not is_number(column) or pd.api.types.is_bool_dtype(column) or values.empty:
        return ""
    for end in (values.min(), values.max()):
        text = f"{end:.0f}"
        if _SENTINEL.fullmatch(text) and float(text) == end:
            others = values[values != end]
            is_repeated = len(values) - len(others) > 2 and others.nunique() > 1
            is_far = end < 0 <= others.min() or abs(others - end).min() > others.max() - others.min()
            return text if is_repeated and is_far else ""
    return ""


def _kind_of_numbers(name: str, values: Series[Any]) -> tuple[Kind, str]:
    if pd.api.types.is_bool_dtype(values) or values.nunique() <= _FEW:
        return "number", ""
    numbers = values.to_numpy(dtype=np.float64)
    if not np.isfinite(numbers).all() or (numbers != np.floor(numbers)).any():
        return "number", ""
    different, low, high = len(np.unique(numbers)), int(numbers.min()), int(numbers.max())
    if _ID_NAME.search(name):
        return "id", f"ids by its name, {different:,} different integers"
    is_dense = (np.diff(numbers) > 0).all() and high - low < _DENSE * different
    if different == len(numbers) and (is_dense or high - low + 1 == different):
        return "id", f"the rows' numbers, {low} to {high}"
    month, day = numbers // 100 % 100, numbers % 100
    are_days = ((month >= 1) & (month <= 12) & (day >= 1) & (day <= 31)).all()
    if low >= 19000101 and high <= 21001231 and are_days:
        return "date", f"dates such as {int(numbers[0])}"
    is_time = _TIME_NAME.search(name) and _EPOCH_SECONDS[0] <= low and high <= _EPOCH_SECONDS[1]
    return ("date", f"points in time such as {int(numbers[0])}") if is_time else ("number", "")


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
    if _ID_NAME.search(name):
        return "id", f"ids by its name, {len(unique):,} different values {example}"
    words = sum(len(text.split()) for text in sample) / len(sample)
    if 2 * len(unique) > len(values):
        counts = f"{len(unique):,} different values in {len(values):,} rows, {example}"
        return ("id", f"ids or names: {counts}") if words < 1.5 else ("text", f"free text: {counts}")
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
    if texts.str.match(r"\d{4}").all() and not _parse_dates(texts, ISO).isna().any():
        return ISO
    forms = [form for form in map("".join, product(_DAYS, _TIMES)) if _matches_format(texts.iloc[0], form)]
    forms = [form for form in forms if not _parse_dates(texts, form).isna().any()]
    chosen = [form for form in forms if day_first is None or _has_day_first(form) == day_first]
    if not chosen:
        raise DataError(
            f"data: the dates in the column {column.name!r} are not all in one known format, such as "
            f"{texts.iloc[0]!r}",
            hint="write them as 2024-12-31, or leave the column out: "
            + format_override("data.source.exclude", [str(column.name)]),
        )
    if len({_has_day_first(form) for form in chosen}) > 1:
        raise DataError(
            f"data: cannot tell whether the day or the month comes first in the dates of the column "
            f"{column.name!r}, such as {texts.iloc[0]!r}",
            hint="data.source.day_first=true, or data.source.day_first=false",
        )
    return chosen[0]


def _matches_format(text: str, form: str) -> bool:
    """As `_parse_dates` says of a column, which takes a hundred times as long."""
    try:
        return bool(datetime.strptime(text, form))
    except ValueError:
        return False


def _has_day_first(form: str) -> bool:
    return "%m" not in form or form.index("%d") < form.index("%m")


def parse_dates(column: pd.Series[Any], form: str) -> pd.Series[Any]:
    """Points in time without a zone, in UTC where they have one; NaT for what cannot be read."""
    dates = _parse_dates(column, form)
    if form.startswith("%") and (odd := dates.isna() & column.notna()).any():
        iso = column.where(odd & column.astype(str).str.match(_ISO_DAY))
        dates = dates.fillna(_parse_dates(iso.astype(object), ISO))
    return dates


def _parse_dates(column: pd.Series[Any], form: str) -> pd.Series[Any]:
    """As `as_dates`; NaT for what is not written in the format."""
    if column.dtype.kind == "M":
        return pd.to_datetime(column, utc=True).dt.tz_localize(None)
    present = column.notna()
    dates: pd.Series[Any]
    if form in ("s", "ms"):
        unit: Any = form
        numbers = pd.to_numeric(column.where(present), errors="coerce")
        dates = pd.to_datetime(numbers.astype(np.float64), unit=unit, utc=True, errors="coerce")
    else:
        # Numbers among texts would be taken for nanoseconds.
        texts = column.where(present, None).map(_as_text, na_action="ignore")
        dates = pd.to_datetime(texts.astype(object), format=form, utc=True, errors="coerce")
    dates = dates.dt.tz_localize(None).astype("datetime64[us]")
    return dates


def _as_text(value: Any) -> str:
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value).strip()


def days_since_1970(dates: pd.Series[Any]) -> NDArray[np.float64]:
    """Days with their fractions, NaN for a missing date."""
    return np.asarray((dates.to_numpy() - _EPOCH) / _DAY, dtype=np.float64)


def date_parts(days: NDArray[np.float64], parts: Sequence[str], start: float) -> NDArray[np.float64]:
    """The numbers that a model sees of dates, `[N, len(parts)]`; NaN for a missing date."""
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


def check_columns(frame: pd.DataFrame, names: Sequence[str], path: str, option: str) -> None:
    """Refuse names of columns that a table does not have."""
    known = list(frame.columns)
    for name in names:
        if name not in known:
            similar = did_you_mean(name, known, "; ")
            more = ", …" if len(known) > 20 else ""
            key = option if option.startswith("data.") else f"data.source.{option}"
            message = f"{key}: {path} has no column {name!r}{similar}"
            raise DataError(message, hint=f"columns: {', '.join(known[:20])}{more}")


_FEW_CLASSES = 20
_MOST_CLASSES = 100
_FEW_SAMPLES = 10
"""Of a class on average, below which so many classes are more than make sense."""


def drop_missing_targets(frame: pd.DataFrame, targets: Sequence[str]) -> pd.DataFrame:
    """The rows that have all targets, with their index; integers that gaps made floats are such again."""
    missing = frame[list(targets)].isna().any(axis=1)
    if not missing.any():
        return frame
    complete = frame[~missing].copy()
    for name in targets:
        if frame[name].isna().any():
            values = complete[name].infer_objects()
            is_integral = pd.api.types.is_float_dtype(values) and bool((values == np.floor(values)).all())
            complete[name] = values.astype(np.int64) if is_integral and np.isfinite(values).all() else values
    return complete


def task_of_columns(frame: pd.DataFrame, targets: Sequence[str]) -> tuple[str, str]:
    """The task of the target columns, and a note where it is ambiguous."""
    frame = drop_missing_targets(frame, targets)
    judged = [is_real(frame[name], name) for name in targets]
    real = bool(judged) and all(is_number for is_number, _ in judged)
    if len(targets) > 1 and not real and not frame[list(targets)].isin([0, 1]).to_numpy().all():
        return Multitask.name, ""
    notes = "; ".join(note for _, note in judged if note)
    num_classes = int(frame[targets[0]].nunique()) if len(targets) == 1 and not real else 0
    return infer_task(is_real=real, num_columns=len(targets), num_classes=num_classes), notes


def is_real(values: pd.Series[Any], name: str) -> tuple[bool, str]:
    """Whether a target is predicted as a number, and a note where that is ambiguous."""
    different = values.nunique()
    if not is_number(values):
        if not isinstance(values.dtype, pd.CategoricalDtype):  # else the file says that these are classes
            _check_classes(values, name, different)
        return False, _note_on_spelling(values, name)
    is_float = pd.api.types.is_float_dtype(values)
    note = (
        f"the target {name!r} has {different:,} different {'values' if is_float else 'integers'} and is "
        "predicted as a number; for classes: data.source.task=multiclass"
    )
    if is_float:
        return True, note if 1 < different <= _FEW and bool((values == np.floor(values)).all()) else ""
    if pd.api.types.is_bool_dtype(values) or different <= 2:
        return False, ""
    is_rare = values.value_counts().min() < 3  # such a class cannot be in all subsets: these may be counts
    if different <= _FEW_CLASSES and not is_rare:
        return False, ""
    if different <= _FEW_CLASSES or len(values) / different >= _FEW_CLASSES:
        raise DataError(
            f"data.source.target={name}: {different:,} different integers in {len(values):,} rows may be "
            "numbers or classes",
            hint="data.source.task=regression, or data.source.task=multiclass",
        )
    return True, note


def _note_on_spelling(values: pd.Series[Any], name: str, what: str = "classes") -> str:
    spellings: dict[str, list[str]] = {}
    for value in map(str, values.dropna().unique()):
        spellings.setdefault(value.strip().casefold(), []).append(value)
    alike = ", ".join(map(repr, next((some for some in spellings.values() if len(some) > 1), ())))
    return f"{what} of {name!r} differ only in case or spaces: {alike}" if alike else ""


def _check_classes(values: pd.Series[Any], name: str, different: int) -> None:
    kind, why = kind_of(values)
    example = str(values.iloc[0])[:40] if len(values) else ""
    key = f"data.source.target={name}"
    if kind == "unclear":
        raise DataError(f"{key}: the column is {why}", hint=to_numbers(values))
    if kind == "date":
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


_ROWS = 20
"""Below this many, one column may follow another by chance."""
_ROUNDING = 1e-12


def find_leak(frame: pd.DataFrame, features: Sequence[str], target: str) -> tuple[str, str]:
    """The first feature from which the target can be read off, and how; two empty texts if there is none."""
    for name in features:
        both = frame[[name, target]].dropna()
        if len(both) >= _ROWS and (how := _describe_relation(both[name], both[target])):
            return name, how
    return "", ""


def _describe_relation(feature: Series[Any], target: Series[Any]) -> str:
    different = target.nunique()
    if different < 2:
        return ""
    if feature.astype(str).equals(target.astype(str)):
        return "the two columns are equal"
    if is_number(feature) and is_number(target) and different > 2:
        numbers = feature.to_numpy(dtype=float), target.to_numpy(dtype=float)
        with np.errstate(all="ignore"):
            apart = 1 - abs(np.corrcoef(*numbers)[0, 1])
        return "the target is a linear function of it" if apart < _ROUNDING else ""
    if 2 * different > len(target) or feature.nunique() != different:
        return ""
    pairs = pd.DataFrame({"feature": feature, "target": target}).drop_duplicates()
    return f"each of its {different} values stands for one of the target" if len(pairs) == different else ""


NAMED: Final = 10
"""Columns in a sentence."""


@final
@dataclass(frozen=True)
class ColumnOptions:
    """Column options of a config; see `assay.data.table.Table`."""

    targets: list[str]
    features: Sequence[str] | None = None
    exclude: Sequence[str] = ()
    keep: Sequence[str] = ()
    categories: Sequence[str] = ()
    day_first: bool | None = None


@final
@dataclass
class Features:
    """The chosen features, with the reasons."""

    names: list[str]
    forms: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    kinds: dict[str, tuple[Any, str]] = field(default_factory=dict)


def choose_features(frame: pd.DataFrame, options: ColumnOptions, path: str) -> Features:
    """Choose the feature columns by what each column holds."""
    for option in ("features", "exclude", "keep", "categories"):
        names = getattr(options, option) or []
        check_columns(frame, names, path, option)
        if both := [name for name in names if name in options.targets]:
            message = f"data.source.{option}: {both[0]!r} is the target"
            raise DataError(message, hint=f"leave it out of {option}")
    named = frame.columns if options.features is None else options.features
    chosen = Features([name for name in named if name not in (*options.targets, *options.exclude)])
    names = [name for name in chosen.names if name not in options.categories]
    chosen.kinds = kinds = {name: kind_of(frame[name]) for name in names}
    if options.features is None:
        _leave_out_unfit(frame, options, chosen)
    dates = [name for name in chosen.names if name in kinds and kinds[name][0] == "date"]
    chosen.forms = {name: find_format(frame[name], options.day_first) for name in dates}
    if not chosen.names:
        why = f" ({'; '.join(chosen.notes)})" if chosen.notes else ""
        message = f"data.source.features: no column is left to predict from{why}"
        raise DataError(message, hint="add a column, or keep one: data.source.keep=[NAME]")
    _add_notes(frame, options, chosen)
    _check_leaks(frame, options, chosen)
    return chosen


def _leave_out_unfit(frame: pd.DataFrame, asked: ColumnOptions, chosen: Features) -> None:
    left_out: dict[str, str] = {}
    unclear: list[str] = []
    for name, (kind, why) in chosen.kinds.items():
        if name in asked.keep:
            continue
        if kind == "unclear":
            unclear.append(name)
        elif len(frame) > 1 and frame[name].nunique() == 1:
            left_out[name] = "one value in all rows"
        elif why and kind != "date":
            left_out[name] = why
    if unclear:
        them = "it" if len(unclear) == 1 else "them"
        raise DataError(
            f"data: {join_names([f'the column {name!r} is {chosen.kinds[name][1]}' for name in unclear])}",
            hint=f"{to_numbers(*(frame[name] for name in unclear))}; "
            f"{_override(asked, 'exclude', *unclear)} leaves {them} out, "
            f"{_override(asked, 'keep', *unclear)} takes {them} as categories",
        )
    if left_out:
        reasons = "; ".join(f"{name} ({why})" for name, why in left_out.items())
        able = next((name for name in left_out if not frame[name].isna().all()), "")
        keep = f"; to use one: {_override(asked, 'keep', able)}" if able else ""
        if text := next((name for name in left_out if chosen.kinds[name][0] == "text"), ""):
            keep += f"; to learn from texts: data=text_table {format_override('data.source.text', text)}"
        chosen.notes.append(f"left out of the features: {reasons}{keep}")
        chosen.names = [name for name in chosen.names if name not in left_out]


def _add_notes(frame: pd.DataFrame, asked: ColumnOptions, chosen: Features) -> None:
    if chosen.forms:
        dates = [
            f"{name} such as {str(frame[name].dropna().iloc[0])[:40]!r}{f' ({form})' if '%' in form else ''}"
            for name, form in chosen.forms.items()
        ]
        days = [days_since_1970(parse_dates(frame[name], form)) for name, form in chosen.forms.items()]
        hour = ", hour" if any((of_column % 1 > 0).any() for of_column in days) else ""
        chosen.notes.append(
            f"dates become year, month, weekday{hour} and days since the first, those that vary: "
            + join_names(dates)
        )
    texts = [name for name in chosen.names if chosen.kinds.get(name, ("category", ""))[0] == "category"]
    chosen.notes += filter(None, [_note_on_spelling(frame[name], name, "categories") for name in texts])
    numeric = [name for name in (*chosen.names, *asked.targets) if name not in asked.categories]
    if far := {name: text for name in numeric if (text := find_sentinel(frame[name]))}:
        found = [
            f"{name} ({text}, {(frame[name] == float(text)).sum():,} times)" for name, text in far.items()
        ]
        option = f"'data.source.na_values=[{','.join(sorted({*far.values()}))}]'"
        message = f"numbers unlike all others: {join_names(found)}; where they mean a missing value: {option}"
        chosen.notes.append(message)
    few = [name for name in chosen.names if name not in asked.categories and _is_few_integers(frame[name])]
    if few:
        values = join_names([f"{name} ({frame[name].nunique()} values)" for name in few])
        chosen.notes.append(
            f"integers with few values are taken as numbers: {values}; as categories: "
            f"{_override(asked, 'categories', few[0])}"
        )


def join_names(texts: Sequence[str]) -> str:
    """The first of some columns, and how many more there are."""
    more = f", and {len(texts) - NAMED} more columns" if len(texts) > NAMED else ""
    return f"{', '.join(texts[:NAMED])}{more}"


def _is_few_integers(column: pd.Series[Any]) -> bool:
    if not is_number(column) or pd.api.types.is_bool_dtype(column):
        return False
    values = column.dropna()
    return 2 < values.nunique() <= _FEW and bool((values == values.round()).all())


def _check_leaks(frame: pd.DataFrame, asked: ColumnOptions, chosen: Features) -> None:
    names = [name for name in chosen.names if name not in asked.keep]
    for target in asked.targets:
        name, how = find_leak(frame, names, target)
        given_away = f"the column {name!r} reveals the target {target!r}: {how}"
        if name and len(chosen.names) > 1:
            raise DataError(
                f"data: {given_away}",
                hint=f"{_override(asked, 'exclude', name)}; where it is known before the target: "
                f"{_override(asked, 'keep', name)}",
            )
        chosen.notes += [given_away] if name else []  # nothing else to predict from: it cannot be a slip


def _override(asked: ColumnOptions, option: str, *columns: str) -> str:
    """The columns beside those that are named already: an override replaces the whole list."""
    return format_override(f"data.source.{option}", [*getattr(asked, option), *columns])
