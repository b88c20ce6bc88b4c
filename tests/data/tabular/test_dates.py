from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

from assay.data.tabular.column_kind import PARTS, as_dates, days_since_1970, find_format, has_times, parts_of
from assay.errors import DataError

DAYS = pd.Series(pd.date_range("2023-11-03 07:30", periods=60, freq="53h"), name="day")
FORMS = [
    *(
        "%d.%m.%Y",
        "%d.%m.%y",
        "%d/%m/%Y",
        "%m/%d/%Y",
        "%d-%m-%Y",
        "%d %b %Y",
        "%d %B %Y",
        "%b %d, %Y",
        "%Y-%m-%d",
    ),
    *(
        "%Y-%m-%d %H:%M:%S",
        "%d.%m.%Y %H:%M",
        "%m/%d/%Y %I:%M %p",
        "%Y/%m/%d",
        "%a, %d %b %Y",
        "%Y-%m-%dT%H:%M:%SZ",
    ),
]


@pytest.mark.parametrize("form", FORMS)
def test_what_strftime_has_written_is_read(form: str) -> None:
    texts = DAYS.dt.strftime(form)
    texts[3] = None
    read = as_dates(texts, find_format(texts))
    expected = pd.to_datetime(texts, format=form).astype("datetime64[us]")
    if form.endswith("Z"):
        expected = DAYS.astype("datetime64[us]").where(texts.notna())
    pd.testing.assert_series_equal(read, expected, check_names=False)


@pytest.mark.parametrize(
    ("column", "form"),
    [
        (DAYS, "ISO8601"),
        (DAYS.dt.tz_localize("UTC").dt.tz_convert("Europe/Berlin"), "ISO8601"),
        (DAYS.dt.strftime("%Y%m%d").astype(int), "%Y%m%d"),
        (DAYS.astype("datetime64[s]").astype(np.int64), "s"),
        (DAYS.astype("datetime64[ms]").astype(np.int64), "ms"),
    ],
)
def test_dates_that_are_no_texts(column: pd.Series[Any], form: str) -> None:
    assert find_format(column) == form
    read = as_dates(column, form)
    assert (read == (DAYS.dt.normalize() if form == "%Y%m%d" else DAYS)).all()


def test_the_day_or_the_month_first() -> None:
    either = pd.Series(["05/01/2024", "06/02/2024"], name="day")
    with pytest.raises(
        DataError, match=r"is the day or the month first .* 'day', such as '05/01/2024'"
    ) as asked:
        find_format(either)
    assert asked.value.hint == "data.source.day_first=true, or data.source.day_first=false"
    assert as_dates(either, find_format(either, True)).dt.month.tolist() == [1, 2]
    assert as_dates(either, find_format(either, False)).dt.month.tolist() == [5, 6]
    told = pd.Series(["05/01/2024", "06/22/2024"])
    assert find_format(told) == "%m/%d/%Y"


@pytest.mark.parametrize("form", ["%d.%m.%Y", "%m/%d/%Y", "%d %b %Y", "%Y%m%d", "%d.%m.%Y %H:%M"])
def test_a_date_with_one_meaning_alone_is_read_beside_those_of_training(form: str) -> None:
    texts = pd.Series([DAYS[0].strftime(form), "2023-07-06", "2023-07-06 12:30", "06.07", "2023-13-01", None])
    read = as_dates(texts, form)
    assert read[1:3].tolist() == [pd.Timestamp("2023-07-06"), pd.Timestamp("2023-07-06 12:30")]
    assert read[0] == pd.to_datetime(texts[0], format=form)
    assert read[3:].isna().all()


@pytest.mark.parametrize(
    ("texts", "form", "expected"),
    [
        (DAYS.dt.strftime("%d.%m.%Y"), "%d.%m.%Y", False),
        (DAYS.dt.strftime("%Y-%m-%d"), "ISO8601", False),
        (DAYS.dt.strftime("%Y-%m-%d %H:%M"), "ISO8601", True),
        (DAYS.dt.strftime("%m/%d/%Y %I:%M %p"), "%m/%d/%Y %I:%M %p", True),
        (DAYS, "ISO8601", True),
        (DAYS.dt.normalize(), "ISO8601", False),
        (DAYS.astype("int64"), "s", True),
    ],
)
def test_dates_with_a_time_of_day(texts: pd.Series[Any], form: str, expected: bool) -> None:
    assert has_times(texts, form) is expected


def test_dates_of_several_forms_are_refused() -> None:
    mixed = pd.Series(["2024-01-05", "05.01.2024", "6 Jan 2024"], name="day")
    with pytest.raises(DataError, match=r"'day' are not all written in one .* '2024-01-05' and '05.01.2024'"):
        find_format(mixed)


def test_the_parts_are_those_of_pandas() -> None:
    days = days_since_1970(as_dates(DAYS, "ISO8601"))
    found = parts_of(np.append(days, np.nan), PARTS, days[0])
    dates = DAYS.dt
    elapsed = (DAYS - DAYS.min()) / pd.Timedelta(days=1)
    expected = np.column_stack([dates.year, dates.month, dates.day_of_week, dates.hour, elapsed])
    np.testing.assert_allclose(found[:-1], expected, rtol=1e-12, atol=1e-9)
    assert np.isnan(found[-1]).all()
    assert parts_of(days, (), 0.0)[:, 0].tolist() == days.tolist()
