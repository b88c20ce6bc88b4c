"""What columns of a table are taken for, and how they become numbers."""

from __future__ import annotations

import datetime
import difflib
import json
import math
import re
from itertools import cycle
from statistics import NormalDist
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.compose import ColumnTransformer  # type: ignore[import-untyped]  # scikit-learn ships no types
from sklearn.impute import SimpleImputer  # type: ignore[import-untyped]  # scikit-learn ships no types
from sklearn.neighbors import KNeighborsClassifier  # type: ignore[import-untyped]  # scikit-learn ships no types
from sklearn.pipeline import make_pipeline  # type: ignore[import-untyped]  # scikit-learn ships no types
from sklearn.preprocessing import OneHotEncoder, QuantileTransformer  # type: ignore[import-untyped]  # scikit-learn ships no types
from tests.data.tables import encoder_of, in_columns, named_inputs, write_table

from assay.data.table.column import judge_rows
from assay.data.table.column_kind import kind_of
from assay.data.table.date import Date, find_format, parse_dates
from assay.data.table.features import ColumnOptions, Features, choose_features
from assay.data.table.leak import find_hints, find_leak
from assay.data.table.number import Number, find_amount, find_words, parse_amounts
from assay.data.table.table import Table
from assay.data.table.table_encoder import TableEncoder
from assay.data.table.table_file import prepare_rows
from assay.data.table.table_targets import drop_missing_targets, task_of_columns
from assay.errors import DataError
from assay.quoting import format_override
from assay_serve.export.exportable import text_codes

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def table_of(folder: Path, frame: pd.DataFrame, target: str, **options: Any) -> Table:
    """A source of these rows."""
    return Table(write_table(frame, folder / "rows.csv"), target, **options)


MANY = range(1, 41)

COLUMNS: list[tuple[str, str, Any]] = [
    ("number", "height", [n / 7 for n in MANY]),
    ("number", "customer_id", [1, 2, 3] * 9),  # few values: perhaps a kind of customer
    ("number", "garden", [True, False] * 9),
    ("number", "infinite", [float("inf"), *MANY]),
    ("number", "amount", [10**9 + 7 * n for n in MANY]),
    ("id", "customerId", [n * n for n in MANY]),
    ("id", "anything", list(MANY)),
    ("id", "anything", [n for n in range(60) if n % 9]),
    ("number", "anything", [3 * n for n in MANY]),
    ("id", "Kunden-Nr.", [n * n for n in MANY]),
    ("id", "key", [f"K{n * 17}x" for n in MANY]),
    ("id", "uuid", [f"{'abcdefghijklm'[n % 13]} b" for n in range(60)]),
    ("date", "day", [f"2024-01-{n % 28 + 1:02}" for n in MANY]),
    ("date", "day", [f"{n % 28 + 1} March 2024" for n in MANY]),
    ("date", "day", [f"March {n % 28 + 1}, 2024" for n in MANY]),
    ("date", "day", [f"{n % 28 + 1}.3.2024 10:15" for n in MANY]),
    ("date", "day", [20240100 + n % 28 + 1 for n in MANY]),
    ("date", "created_at", [1_700_000_000 + 7 * n for n in MANY]),
    ("date", "day", pd.date_range("2024-01-01", periods=40)),
    ("duration", "wait", pd.to_timedelta(range(40), unit="h")),
    ("duration", "month", pd.period_range("2024-01", periods=40, freq="M")),
    ("category", "city", ["Ulm", "Bonn"] * 20),
    ("category", "code", [f"A{n % 15}" for n in range(60)]),
    ("id", "mail", [f"person{n}@example.org" for n in MANY]),
    ("text", "remark", [f"the {n}th remark of some length here" for n in MANY]),
    ("text", "remark", [f"one of {n % 15} remarks that come again" for n in range(60)]),
    ("amount", "price", [f"${n},000" for n in MANY]),
    ("amount", "share", [f"{n} %" for n in MANY]),
    ("amount", "balance", [f"({n}.50)" for n in MANY]),
    ("amount", "discount", ["0%", "5%", "10%"] * 9),
    ("amount", "size", [*map(str, MANY), "?", "unknown"]),
    ("amount", "few", ["1", "2", "?"] * 9),
    ("time", "start", [f"{n % 24}:{n:02}" for n in MANY]),
    ("time", "start", [f"{n % 12 + 1}:{n:02} PM" for n in MANY]),
    ("time", "start", [datetime.time(n % 24, n) for n in MANY]),
    ("id", "ssn", [f"{n + 120}-{n + 50}-{n * 97 + 4000}" for n in MANY]),
    ("id", "release", [f"3.{n}.{n % 7}" for n in MANY]),
    ("id", "version", [f"3.8.{n + 9}" for n in MANY]),
    ("id", "host", [f"10.0.{n % 3}.{n}" for n in MANY]),
    ("id", "invoice", [f"2024-01-{n:04}" for n in MANY]),
    ("category", "sort_code", [f"12-{n % 12 + 60}-56" for n in MANY]),
    ("category", "zip", [f"{n % 15 + 1230:05}" for n in MANY]),
    ("category", "zip", [f"{n % 15 + 12300}-0001" for n in MANY]),
    ("category", "phone", [f"555 123 {n % 15 + 100}" for n in MANY]),
    ("id", "account", [f"{n:016}" for n in MANY]),
    ("id", "isbn", [f"978-3-16-{n + 148410}-0" for n in MANY]),
    ("category", "place", [f"{n % 12}{'st' if n % 4 < 1 else 'abcd'[n % 4] * 2}" for n in MANY]),
    ("category", "children", ["0", "1", "2", "3+"] * 9),
    ("category", "house", ["12A", "12B", "3C", "7D"] * 20),
    ("category", "version", ["1.2.3", "1.2.4"] * 20),
    ("category", "screen", ["4K", "8K"] * 20),
    ("empty", "nothing", [None, float("nan")]),
]


@pytest.mark.parametrize(
    ("kind", "name", "values"), COLUMNS, ids=lambda one: one if isinstance(one, str) else ""
)
def test_what_a_column_holds(kind: str, name: str, values: Any) -> None:
    for gaps in ([], [None]) if name != "garden" else ([],):
        found, why = kind_of(pd.Series([*values, *gaps] if gaps else values, name=name))
        assert found == kind, why
        assert bool(why) == (kind not in ("number", "category"))


@pytest.mark.parametrize("zero", ["0", "-0.0", "+0", "0,00", "0 %", "$0.00"])
def test_a_zero_is_not_proposed_as_a_missing_value(zero: str) -> None:
    assert find_words(pd.Series(["1.5", zero, "unknown", "0000-00-00", " "])) == ["unknown", "0000-00-00"]


DATES = pd.Series(pd.date_range("2023-11-03 07:30", periods=60, freq="53h"), name="day")

FORMS = [
    *("%d.%m.%Y", "%d.%m.%y", "%d/%m/%Y", "%m/%d/%Y", "%d-%m-%Y", "%d %b %Y", "%d %B %Y"),
    *("%b %d, %Y", "%Y-%m-%d", "%Y/%m/%d", "%Y-%m-%d %H:%M:%S", "%d.%m.%Y %H:%M"),
    *("%m/%d/%Y %I:%M %p", "%a, %d %b %Y", "%Y-%m-%dT%H:%M:%SZ"),
]


@pytest.mark.parametrize("form", FORMS)
def test_what_strftime_has_written_is_read(form: str) -> None:
    texts = DATES.dt.strftime(form).copy()
    texts[3] = None
    read = parse_dates(texts, find_format(texts))
    expected = pd.to_datetime(texts, format=form).astype("datetime64[us]")
    if form.endswith("Z"):
        expected = DATES.astype("datetime64[us]").where(texts.notna())
    pd.testing.assert_series_equal(read, expected, check_names=False)


@pytest.mark.parametrize(
    ("column", "form"),
    [
        (DATES, "ISO8601"),
        (DATES.dt.tz_localize("UTC").dt.tz_convert("Europe/Berlin"), "ISO8601"),
        (DATES.dt.strftime("%Y%m%d").astype(int), "%Y%m%d"),
        (DATES.astype("datetime64[s]").astype(np.int64), "s"),
        (DATES.astype("datetime64[ms]").astype(np.int64), "ms"),
    ],
)
def test_dates_that_are_no_texts(column: pd.Series[Any], form: str) -> None:
    assert find_format(column) == form
    read = parse_dates(column, form)
    assert (read == (DATES.dt.normalize() if form == "%Y%m%d" else DATES)).all()


def test_the_day_or_the_month_first() -> None:
    either = pd.Series(["05/01/2024", "06/02/2024"], name="day")
    with pytest.raises(
        DataError, match=r"day or the month comes first .* 'day', such as '05/01/2024'"
    ) as asked:
        find_format(either)
    assert asked.value.hint == "data.source.day_first=true, or data.source.day_first=false"
    assert parse_dates(either, find_format(either, True)).dt.month.tolist() == [1, 2]
    assert parse_dates(either, find_format(either, False)).dt.month.tolist() == [5, 6]
    assert find_format(pd.Series(["05/01/2024", "06/22/2024"])) == "%m/%d/%Y"


@pytest.mark.parametrize("form", ["%d.%m.%Y", "%m/%d/%Y", "%d %b %Y", "%Y%m%d", "%d.%m.%Y %H:%M"])
def test_a_date_with_one_meaning_alone_is_read_beside_those_of_training(form: str) -> None:
    first = DATES[0].strftime(form)
    read = parse_dates(
        pd.Series([first, "2023-07-06", "2023-07-06 12:30", "06.07", "2023-13-01", None]), form
    )
    assert read[1:3].tolist() == [pd.Timestamp("2023-07-06"), pd.Timestamp("2023-07-06 12:30")]
    assert read[0] == pd.to_datetime(first, format=form)
    assert read[3:].isna().all()


@pytest.mark.parametrize(
    "forms",
    [
        ("%Y-%m-%d", "%d %b %Y", "%B %d, %Y", "%Y/%m/%d"),
        ("%d.%m.%Y", "%b %d, %Y"),
        ("%m/%d/%Y", "%d %B %Y", "%Y-%m-%d %H:%M"),
    ],
)
def test_dates_of_several_forms_are_read_where_each_has_one_meaning(forms: tuple[str, ...]) -> None:
    days = DATES.dt.normalize()
    texts = pd.Series([day.strftime(forms[row % len(forms)]) for row, day in enumerate(days)], name="day")
    form = find_format(texts)
    assert (parse_dates(texts, form) == days).all()
    assert parse_dates(pd.Series(["no date", "31/31/2024"]), form).isna().all()


@pytest.mark.parametrize("texts", [["05.01.2024", "05/06/2024"], ["6 Jan 2024", "05/06/2024", "Jan 7, 2024"]])
def test_dates_of_several_forms_are_asked_about_where_one_has_two_meanings(texts: list[str]) -> None:
    mixed = pd.Series(texts, name="day")
    with pytest.raises(DataError, match="day or the month comes first") as asked:
        find_format(mixed)
    assert asked.value.hint == "data.source.day_first=true, or data.source.day_first=false"
    months = {first: parse_dates(mixed, find_format(mixed, first)).dt.month[1] for first in (True, False)}
    assert months == {True: 6, False: 5}


def test_dates_that_put_day_and_month_in_both_orders_are_refused() -> None:
    mixed = pd.Series(["13/05/2024", "05/13/2024", "6 Jan 2024"], name="day")
    with pytest.raises(DataError, match=r"'day' are not all in a known format: '(05/13|13/05)/2024'"):
        find_format(mixed)


FRAME = pd.DataFrame(
    {
        "y": np.linspace(0, 1, 40) ** 2,
        "x": np.sin(np.arange(40.0)),
        "day": pd.date_range("2024-01-20", periods=40).strftime("%d/%m/%Y"),
        "either": ["05/01/2024", "06/02/2024"] * 20,
        "remark": [f"the {n}th remark of some length here" for n in range(40)],
        "same": 1,
        "grade": np.resize([1, 2, 3], 40),
    }
)

MIXED = [*(f"${price:,}.50" for price in range(100_000, 139_000, 1_000)), "€7"]
AREAS = [*map(str, range(38)), "hidden", "n/k"]


@pytest.mark.parametrize(("time", "parts"), [("", "weekday, sine"), (" 12:30", "weekday, hour, sine")])
def test_the_hour_is_announced_where_dates_have_a_time(time: str, parts: str) -> None:
    days = [f"2024-05-{day:02}{time}" for day in range(1, 29)]
    (note,) = choose_features(
        pd.DataFrame({"y": range(28), "day": days}), ColumnOptions(["y"]), "rows.csv"
    ).notes
    assert note.startswith(f"dates become year, month, day of the year, {parts} and cosine of the year")


@pytest.mark.parametrize("asked", [{}, {"exclude": ["either"], "keep": ["remark"], "na_values": ["-1"]}])
def test_all_problems_of_a_table_are_told_together(asked: dict[str, Any]) -> None:
    frame = FRAME.assign(price=MIXED, area=AREAS, when=[*FRAME["day"][1:], "31/31/2024"], copy=FRAME["y"])
    frame["start"] = [*(f"{hour % 24}:00" for hour in range(39)), "25:61"]
    frame["cells"] = [[1, 2]] * 40
    with pytest.raises(DataError) as caught:
        choose_features(frame, ColumnOptions(["y"], day_first=True, **asked), "rows.csv")
    message, hint = caught.value.message, caught.value.hint
    assert "the column 'price' mixes units: '$138,000.50' and '€7'" in message
    assert "the column 'area' looks like numbers, such as '0', but holds 'hidden', 'n/k'" in message
    assert "the dates in the column 'when' are not all in a known format: '31/31/2024'" in message
    assert "the column 'start' holds times of day, but also '25:61'" in message
    assert "the column 'cells' cannot be predicted from" in message
    assert "'copy' reveals the target 'y'" in message
    assert f"data.source.na_values=[{''.join(f'{one},' for one in asked.get('na_values', []))}hidden," in (
        hint.replace('"-1"', "-1")
    )
    named = ["price", "area", "when", "start", "cells"]
    assert f"data.source.exclude=[{','.join([*asked.get('exclude', []), *named])}]" in hint
    assert f"data.source.keep=[{','.join([*asked.get('keep', []), 'price', 'area'])}]" in hint
    done = ColumnOptions(["y"], day_first=True, exclude=[*named, "copy"])
    assert "x" in choose_features(frame, done, "rows.csv").names


DRAW = np.random.default_rng(0)
PRICE, KIND = pd.Series(DRAW.normal(300, 50, 200)), pd.Series(DRAW.choice(["a", "b", "c"], 200))


@pytest.mark.parametrize(
    ("target", "make", "how"),
    [
        (PRICE, lambda y: y, "equal"),
        (KIND, lambda y: y.map({"a": 3, "b": 1, "c": 2}), "3 values stands for one"),
        (KIND, lambda y: y.str.upper(), "3 values stands for one"),
        (PRICE, lambda y: y / 1000, "a linear function"),
        (PRICE, lambda y: 32 - 1.8 * y, "a linear function of it"),
        (PRICE, lambda y: (y / 7).mask(y > 320), "a linear function"),
    ],
)
def test_the_target_under_another_name(target: pd.Series, make: Callable[..., pd.Series], how: str) -> None:
    frame = pd.DataFrame({"noise": DRAW.normal(size=200), "other": make(target), "y": target})
    name, said = find_leak(frame, ["noise", "other"], "y")
    assert name == "other"
    assert how in said


@pytest.mark.parametrize(
    ("target", "feature"),
    [
        (PRICE, PRICE + DRAW.normal(0, 0.01, 200)),
        (PRICE, PRICE**2),
        (PRICE, pd.Series(np.ones(200))),
        (KIND, KIND.where(KIND.index > 0, "c" if KIND[0] != "c" else "a").str.upper()),
        (KIND, KIND.map({"a": 1, "b": 1, "c": 2})),
        (PRICE, PRICE.where(PRICE.index < 19)),
    ],
    ids=["noise", "a square", "constant", "one row", "coarser", "too few rows"],
)
def test_what_only_goes_along_with_it(target: pd.Series, feature: pd.Series) -> None:
    assert find_leak(pd.DataFrame({"x": feature, "y": target}), ["x"], "y") == ("", "")


TARGETS: dict[str, tuple[list[Any], str, bool]] = {
    "fractions": ([0.5, 1.25, 2.75] * 20, "regression", False),
    "few whole floats": ([1.0, 2.0, 3.0] * 20, "regression", True),
    "yes and no": ([True, False] * 30, "binary", False),
    "texts": (["a", "b", "c"] * 20, "multiclass", False),
    "few integers": ([1, 2, 3] * 20, "multiclass", False),
    "twelve integers": (list(range(12)) * 5, "multiclass", False),
    "many integers": (list(range(60)), "regression", True),
    "amounts": ([f"{price:,} €" for price in range(1000, 1030)], "regression", False),
    "integers with a gap": ([1, 2, None] * 20, "binary", False),
    "yes and no with a gap": ([True, None, False] * 20, "binary", False),
}


@pytest.mark.parametrize("kind", TARGETS)
def test_the_task_that_a_target_is(kind: str) -> None:
    values, task, said = TARGETS[kind]
    found, note = task_of_columns(pd.DataFrame({"target": values}), ["target"])
    assert found == task
    assert bool(note) == said
    assert not said or "data.source.task=multiclass" in note


def test_several_columns() -> None:
    frame = pd.DataFrame({"a": [0, 1] * 5, "b": [1, 0] * 5, "x": [0.5, 1.5] * 5, "y": [2.5, 3.5] * 5})
    assert task_of_columns(frame, ["a", "b"]) == ("multilabel", "")
    assert task_of_columns(frame, ["x", "y"]) == ("regression", "")
    assert task_of_columns(frame, ["a", "x"]) == ("multitask", "")
    assert task_of_columns(frame.assign(kind=["u", "v"] * 5), ["a", "kind"]) == ("multitask", "")


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ([f"2024-01-{day:02}" for day in range(1, 29)], "dates"),
        ([*(f"{price:,} €" for price in range(1000, 1030)), "on request"], "holds 'on request'"),
        ([f"name{n}" for n in range(40)], "40 different texts in 40 rows"),
        (list(range(30)) * 25, "30 different integers in 750 rows may be numbers or classes"),
        ([*range(11), *[0, 1] * 20, 14], "12 different integers in 52 rows may be numbers or classes"),
        ([f"name{n}" for n in range(150)] * 5, "150 classes in 750 rows, fewer than 10 rows a class"),
    ],
)
def test_a_target_that_is_neither(values: list[Any], says: str) -> None:
    with pytest.raises(DataError) as refused:
        task_of_columns(pd.DataFrame({"target": values}), ["target"])
    assert says in refused.value.message


def test_rows_without_a_target_go_and_integers_are_such_again() -> None:
    frame = pd.DataFrame({"n": [1.0, None, 3.0], "x": [0.5, 1.0, None], "y": [True, False, None]})
    kept = drop_missing_targets(frame, ["n", "y"])
    assert kept.index.tolist() == [0]
    assert drop_missing_targets(frame, ["n"])["n"].tolist() == [1, 3]
    assert [str(drop_missing_targets(frame, [name])[name].dtype) for name in "nxy"] == [
        "int64",
        "float64",
        "bool",
    ]
    assert drop_missing_targets(frame.iloc[:1], ["n"]) is not None


def test_categories_that_differ_only_in_spelling_are_told(tmp_path: Path) -> None:
    table = pd.DataFrame({"city": ["Essen", "essen ", "Bonn", "Ulm"] * 10, "rooms": range(40), "price": 1.5})
    table["price"] *= np.random.default_rng(0).random(40)
    source = table_of(tmp_path, table, "price")
    source.read()
    assert "categories of 'city' differ only in case or spaces: 'Essen', 'essen '" in source.notes


CODES = [
    ([-999, 1, 5, 3], "-999, 10 times"),
    ([1.5, 99_999, 0.25, 7], "99999, 10 times"),
    ([-99, 0, 1619, 420.5], "-99, 10 times"),  # the only one below 0
    ([-99, -1, 1619, 420], ""),
    ([999, 950, 1, 420], ""),  # not far from the others
    ([-999.5, 1, 5, 3], ""),
    ([20, 30, 90, 99], ""),
    ([9999.9, 52.5, 60, 41], "9999.9, 10 times"),
    ([1e30, 52.5, 60, 41], "1e+30, 10 times"),
    ([1_000_000, 52, 60, 41], "1000000, 10 times"),
    ([-1, 34, 51, 28, 60], "-1, 8 times"),
    ([-9.0, 3.5, 5.25, 28, 60], "-9, 8 times"),
    ([-200, 1.5, -0.5, 7.25, 3], "-200, 8 times"),
    ([-1, 0, 1], ""),
    ([-1, -2, 34, 51, 28, 60], ""),
    ([-1.5, 34, 51, 28, 60], ""),
]


@pytest.mark.parametrize(
    ("name", "values", "said"),
    [*(("size", *case) for case in CODES), *(("price", *case) for case in CODES[:4])],  # the target, too
)
def test_a_number_that_may_stand_for_a_missing_value_is_told(
    tmp_path: Path, values: list[float], said: str, name: str
) -> None:
    draw = np.random.default_rng(0)
    table = pd.DataFrame({column: draw.normal(size=40) for column in ("size", "rooms", "price")})
    table[name] = np.resize(values, 40)
    source = table_of(tmp_path, table, "price", task="regression")
    source.read()
    told = [note for note in source.notes if "possible codes of missing" in note]
    assert [f"{name} ({said})" in note for note in told] == ([True] if said else [])
    for value in re.findall(r"data\.source\.na_values=\[(.*)\]", "".join(told)):
        mended = Table(str(tmp_path / "rows.csv"), "price", task="regression", na_values=[value])
        mended.read()
        assert not any("possible codes of missing" in note for note in mended.notes)


@pytest.mark.parametrize(
    ("stand_in", "said"),
    [
        ("9999-12-31", "9999-12-31, 10 times"),
        ("1900-01-01", "1900-01-01, 10 times"),
        ("2020-03-01", ""),  # not far from the others
        ("2031-05-17", ""),  # neither end of a year
    ],
)
@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_a_date_that_may_stand_for_a_missing_one_is_told(
    tmp_path: Path, stand_in: str, said: str, ending: str
) -> None:
    draw = np.random.default_rng(0)
    days = pd.date_range("2020-01-01", periods=40).strftime("%Y-%m-%d").to_numpy(dtype=object)
    days[::4] = stand_in
    table = pd.DataFrame({"until": days, "x": draw.normal(size=40), "price": draw.normal(size=40)})
    if ending == "parquet":
        table["until"] = table["until"].astype("datetime64[us]")
    path = write_table(table, tmp_path / f"rows.{ending}")
    source = Table(path, "price", task="regression")
    source.read()
    (*_, told) = ["", *(note for note in source.notes if "possible codes of missing" in note)]
    assert (f"until ({said})" in told) is bool(said)
    for value in re.findall(r'data\.source\.na_values=\["(.*)"\]', told):
        mended = Table(path, "price", task="regression", na_values=[value])
        (samples, *_) = mended.read().values()
        assert samples.raw["until"].isna().sum() == 10
        assert not any("possible codes of missing" in note for note in mended.notes)


@pytest.mark.parametrize("form", ["%Y-%m", "%m/%Y", "%m-%Y", "%b-%y", "%b %Y", "%B %Y"])
def test_months_are_dates(form: str) -> None:
    months = pd.date_range("1990-01-01", periods=250, freq="MS")
    texts = pd.Series(months.strftime(form), name="month")
    assert kind_of(texts)[0] == "date"
    assert parse_dates(texts, find_format(texts)).tolist() == months.tolist()


@pytest.mark.parametrize(
    "texts", [["1/125", "1/250", "1/1000"], ["May-lin", "Mar-cus"], ["2010-51", "2011-52"]]
)
def test_texts_that_begin_like_months_are_no_dates(texts: list[str]) -> None:
    assert kind_of(pd.Series(np.resize(texts, 90), name="value"))[0] != "date"


@pytest.mark.parametrize(
    ("texts", "values"),
    [
        (["1.5k", "340k", "2.25M", "900", "1B"], [1500.0, 340e3, 2.25e6, 900.0, 1e9]),
        (["$1.5M", "$20k", "$3,400"], [1.5e6, 20e3, 3400.0]),
        (["19M", "1.9M", "201k"], [19e6, 1.9e6, 201e3]),
        (["1,5 k", "20 k", "3,25 M"], [1500.0, 20e3, 3.25e6]),
        (["70 g", "1.5 g", "3 g"], [70.0, 1.5, 3.0]),
    ],
)
def test_numbers_with_a_scale_or_a_unit_of_one_letter_are_read(texts: list[str], values: list[float]) -> None:
    column = pd.Series(texts * 12, name="views")
    numbered = pd.concat([column, pd.Series([f"{n}.5k" for n in range(1, 40)])], ignore_index=True)
    if texts[0] != "70 g":
        assert kind_of(numbered.rename("views"))[0] == "amount"
    assert parse_amounts(column, find_amount(column))[: len(texts)].tolist() == values


def test_codes_one_of_which_is_a_word_are_categories_and_said(tmp_path: Path) -> None:
    codes = np.resize(["1", "2", "3", "4", "5", "refused"], 90)
    table = pd.DataFrame({"answer": codes, "x": np.arange(90) / 8, "y": np.arange(90) % 7 / 3})
    source = table_of(tmp_path, table, "y", task="regression")
    source.read()
    (note,) = [note for note in source.notes if "numbers beside words" in note]
    assert "answer ('refused')" in note
    assert "data.source.na_values=[refused]" in note
    mended = Table(str(tmp_path / "rows.csv"), "y", task="regression", na_values=["refused"])
    mended.read()
    assert not any("numbers beside words" in note for note in mended.notes)


@pytest.mark.parametrize("decides", [True, False])
def test_a_category_of_thousands_of_rows_is_looked_at_without_a_warning(decides: bool) -> None:
    draw = np.random.default_rng(0)
    shop = draw.integers(0, 4, 8000)
    target = shop // 2 if decides else draw.integers(0, 2, 8000)
    frame = pd.DataFrame({"shop": shop, "y": target}).astype(str)
    assert list(find_hints(frame, ["shop"], "y")) == (["shop"] if decides else [])


@pytest.mark.parametrize("values", [[0.0, 1.0], [1.0, 2.0], [-1.0, 1.0]])
def test_two_integers_written_as_floats_are_classes(tmp_path: Path, values: list[float]) -> None:
    table = pd.DataFrame({"x": np.arange(90) % 11 / 8, "y": np.resize(values, 90)})
    source = table_of(tmp_path, table, "y")
    source.read()
    assert source.task == "binary"
    assert source.class_names == tuple(str(int(value)) for value in values)


def test_a_target_of_lists_is_refused_with_what_to_write(tmp_path: Path) -> None:
    table = pd.DataFrame({"x": np.arange(90) / 8, "tags": [["a", "b"], ["a"]] * 45})
    table.to_json(tmp_path / "rows.jsonl", orient="records", lines=True)
    with pytest.raises(DataError, match=r"data\.source\.target=tags") as refused:
        Table(str(tmp_path / "rows.jsonl"), "tags").read()
    assert "'data.source.label_separator=\";\"'" in str(refused.value.hint)


@pytest.mark.parametrize(
    ("values", "levels"),
    [
        ([3, 15, 10], (3, 10, 15)),
        ([3.0, 15.0, math.nan, 10.0], (3, 10, 15)),
        ([0, 1], ()),  # a code says what the number says
        ([1.5, 2.5, 3.5], ()),
        (list(range(21)), ()),
        ([10**k for k in range(4)], (1, 10, 100, 1000)),
    ],
)
def test_a_few_integers_of_many_rows_are_codes_as_well(
    values: list[float], levels: tuple[float, ...]
) -> None:
    frame = pd.DataFrame({"subject": np.resize(values, 1000), "x": np.arange(1000) / 7})
    encoder = TableEncoder(impute=True)
    encoder.fit(frame, np.arange(1000))
    assert encoder.categories == ((len(levels),) if levels else ())
    encoded = encoder.transform(frame)
    shown = frame["subject"].fillna(frame["subject"].median())
    np.testing.assert_allclose(encoded[:, 0], shown)
    if not levels:
        return
    known = {level: code for code, level in enumerate(levels)}
    assert encoded[:, -1].tolist() == [known.get(value, len(levels)) for value in shown]
    assert encoder.feature_names[-len(levels) :] == [f"subject={level}" for level in levels]
    assert encoder.input_columns[-1] == "subject"
    new = pd.DataFrame({"subject": [levels[1], 11, None, 2.5], "x": [0.0] * 4})
    middle = known.get(float(frame["subject"].median()), len(levels))
    assert encoder.transform(new)[:, -1].tolist() == [1, len(levels), middle, len(levels)]
    few = TableEncoder()
    few.fit(frame.head(40), np.arange(40))
    assert few.categories == (), "fewer than 100 rows each"


@pytest.mark.parametrize(
    ("column", "word"), [("price", "on request"), ("sold", "0000-00-00"), ("sold", "never")]
)
def test_words_among_amounts_of_the_target_and_among_dates_are_named(
    tmp_path: Path, column: str, word: str
) -> None:
    draw = np.random.default_rng(0)
    dates = [f"2024-03-{day:02}" for day in draw.integers(1, 28, 60)]
    prices = [f"${price}.50" for price in draw.integers(1, 99, 60)]
    table = pd.DataFrame({"x": draw.normal(size=60), "sold": dates, "price": prices})
    table.loc[::10, column] = word
    path = tmp_path / "rows.csv"
    write_table(table, path)
    with pytest.raises(DataError, match=column) as refused:
        Table(str(path), "price").read()
    assert refused.value.hint is not None
    assert format_override("data.source.na_values", [word]) in refused.value.hint
    (rows,) = Table(str(path), "price", na_values=[word]).read().values()
    assert len(rows.targets) == (54 if column == "price" else 60)


BUILT = Date("built", 30.0, parts=("elapsed", "month"), start=10.0)


def test_a_missing_date_is_filled_in_part_by_part() -> None:
    assert BUILT.fills == (20.0, 1.0)  # 1970-01-31
    assert math.isnan(Number("size").fills[0])


ROWS = np.arange(150)


def table(seed: int = 0) -> pd.DataFrame:
    """Numbers, whole numbers, yes and no, two columns of categories; the rows after 150 have more of them."""
    draw = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "size": draw.normal(50, 9, 200),
            "city": draw.choice(["Bonn", "Köln", "Ulm", "Aue", "Hof"], 200, p=[0.4, 0.3, 0.15, 0.1, 0.05]),
            "rooms": draw.integers(1, 9, 200),
            "garden": draw.random(200) > 0.5,
            "grade": draw.choice(list("abcdefgh"), 200),
        }
    )
    frame.loc[150:, "city"] = draw.choice(["Bonn", "Rom"], 50)
    return frame


def with_gaps(frame: pd.DataFrame) -> pd.DataFrame:
    draw = np.random.default_rng(1)
    return frame.astype({"garden": object}).mask(draw.random(frame.shape) < 0.1).astype({"garden": float})


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("max_categories", [None, 4, 2, 1])
@pytest.mark.parametrize("impute", [False, True])
def test_as_scikit_learn(impute: bool, max_categories: int | None, seed: int) -> None:
    frame = with_gaps(table(seed)) if impute else table(seed)
    encoder = TableEncoder(impute, max_categories)
    encoder.fit(frame, ROWS)
    one_hot: Any = OneHotEncoder(
        handle_unknown="infrequent_if_exist", max_categories=max_categories, sparse_output=False
    )
    numbers: Any = "passthrough"
    if impute:
        numbers = SimpleImputer(strategy="median", add_indicator=True)
        one_hot = make_pipeline(SimpleImputer(strategy="constant", fill_value=""), one_hot)
    reference = ColumnTransformer(
        [("numbers", numbers, ["size", "rooms", "garden"]), ("texts", one_hot, ["city", "grade"])]
    )
    reference.fit(frame.iloc[ROWS])
    expected = reference.transform(frame).astype(np.float32)
    encoded = in_columns(encoder, encoder.transform(frame))
    assert encoded.dtype == torch.float32
    np.testing.assert_array_equal(encoded.numpy(), expected)


def wave(date: Any, part: str) -> float:
    """Sine or cosine of the share of the year or the week that has passed."""
    if pd.isna(date):
        return math.nan
    cycle, _, kind = part.partition("_")
    if cycle == "year":
        first = datetime.datetime(date.year, 1, 1)
        share = (date - first) / (datetime.datetime(date.year + 1, 1, 1) - first)
    else:
        monday = date.normalize() - datetime.timedelta(days=date.weekday())
        share = (date - monday) / datetime.timedelta(days=7)
    return {"sine": math.sin, "cosine": math.cos}[kind](math.tau * share)


@pytest.mark.parametrize(
    ("days", "cycles"),
    [
        (3, set()),
        (5, {"week_sine", "week_cosine"}),
        (150, {"week_sine", "week_cosine"}),
        (200, {"week_sine", "week_cosine", "day_of_year", "year_sine", "year_cosine"}),
    ],
)
def test_cycles_count_from_half_of_one_on(days: int, cycles: set[str]) -> None:
    encoder = TableEncoder()
    encoder.fit(pd.DataFrame({"day": pd.date_range("2023-09-04", periods=days)}), np.arange(days))
    (column,) = encoder.columns
    assert isinstance(column, Date)
    parts = {*column.parts}
    assert parts - {"year", "month", "day_of_week", "elapsed"} == cycles
    assert {"day_of_week", "elapsed"} <= parts


@settings(max_examples=12)
@given(st.permutations(["size", "city", "rooms", "since", "garden", "grade"]))
def test_each_input_has_the_name_of_its_column(order: list[str]) -> None:
    """In whatever order the columns stand: a value of each input, found by its name in the table itself."""
    frame = table().assign(since=pd.date_range("2020-01-01", periods=200, freq="37h"))
    frame.loc[3::14, ["size", "since"]] = None  # in eleven training rows
    frame.loc[3::20, "rooms"] = None  # in eight, too few to learn from
    encoder = TableEncoder(impute=True)
    encoder.fit(frame[order], ROWS)
    inputs = named_inputs(encoder, frame)
    there = {name: inputs[f"{name} is missing"] == 0 for name in ("size", "since")}
    for name in inputs:
        column, _, category = str(name).partition("=")
        column, _, part = column.removesuffix(" is missing").partition(", ")
        if str(name).endswith("missing"):
            expected: Any = frame[column].isna()
        elif category:
            expected = (frame[column] == category).to_numpy()
        elif part == "elapsed":
            expected = (frame[column] - frame[column][0]).dt.total_seconds() / 86400
        elif "_" in part and part.endswith("sine"):
            expected = frame[column].map(lambda date, part=part: wave(date, part))
        else:
            expected = getattr(frame[column].dt, part) if part else frame[column].to_numpy()
        rows = there.get(column, frame[column].notna()) | str(name).endswith("missing")
        wanted = np.asarray(expected, np.float32)[rows]
        np.testing.assert_allclose(inputs[name][rows], wanted, rtol=1e-6, atol=1e-6)
    assert {"since, year_sine", "since, week_cosine", "since, day_of_year"} <= {*inputs}
    columns = {str(name).partition("=")[0].partition(",")[0] for name in inputs}
    assert columns == {*order, "size is missing", "since is missing"}


@pytest.mark.parametrize("impute", [False, True])
def test_what_is_learned_is_plain_and_comes_back_to_the_bit(impute: bool) -> None:
    frame = with_gaps(table()) if impute else table()
    frame["day"] = pd.date_range("2024-01-01", periods=200)
    encoder = TableEncoder(impute, 4)
    encoder.fit(frame, ROWS)
    again = TableEncoder.from_plain(json.loads(json.dumps(encoder.as_plain())))
    assert torch.equal(again.transform(frame), encoder.transform(frame))
    shuffled = frame[frame.columns[::-1]].assign(more=1)
    assert torch.equal(again.transform(shuffled), encoder.transform(frame))
    assert again.transform(frame.head(0)).shape == (0, encoder.transform(frame).shape[1])


OF_ALL_KINDS: dict[str, Any] = {
    "codes": {},
    "other": None,
    "parts": [],
    "start": 0.0,
    "form": "ISO8601",
    "gaps": True,
    "span": None,
    "marks_gaps": False,
    "shift": 0.0,
    "knots": [],
    "scores": [],
    "ngrams": "",
    "spike": None,
    "levels": [],
}


@pytest.mark.parametrize(
    ("column", "cell", "numbers"),
    [
        ({"kind": "number", "fill": 2.0, "form": ".USD", "span": [1.0, 9.0]}, "$3", [3.0]),
        ({"kind": "number", "fill": 2.0, "form": "", "knots": [0, 4], "scores": [-1, 1]}, 3, [0.5]),
        ({"kind": "date", "fill": 1.0, "parts": ["month", "elapsed"]}, "1970-01-03", [1.0, 2.0]),
        ({"kind": "date", "fill": 0.5, "form": "time", "parts": ["hours"]}, "6:30", [6.5]),
        ({"kind": "category", "fill": "", "codes": {"": 0, "a": 1, "b": 2}, "other": 2}, "c", [2.0]),
    ],
)
def test_what_earlier_runs_have_learned_is_read_and_comes_back(
    column: dict[str, Any], cell: Any, numbers: list[float]
) -> None:
    plain: dict[str, Any] = {
        "columns": [{"name": "x", **OF_ALL_KINDS, **column}],
        "csv": {},
        "target_forms": {},
    }
    encoder = TableEncoder.from_plain(plain)
    assert encoder.transform(pd.DataFrame({"x": [cell]})).tolist() == [numbers]
    again = encoder.as_plain()
    written = json.loads(json.dumps(again["columns"][0]))
    assert written == {name: plain["columns"][0][name] for name in written}  # earlier ones had the rest, too
    assert TableEncoder.from_plain(again).as_plain() == again
    del plain["columns"][0]["levels"]  # and still earlier ones lacked some
    assert TableEncoder.from_plain(plain).as_plain() == again


@pytest.mark.parametrize(
    "wrong", [{"kind": "formula"}, {"name": 3}, {"span": [1.0]}, {"kind": "date", "parts": ["__class__"]}]
)
def test_what_no_encoder_has_written_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(msgspec.ValidationError):
        TableEncoder.from_plain({"columns": [{"name": "x", "kind": "number", **wrong}]})


TRAINING = pd.DataFrame(
    {
        "size": [1.5, 2.5, 4.0, 8.0],
        "rooms": [1, 2, 3, 4],
        "garden": [True, False, True, True],
        "code": ["01", "1", "x", "x"],
        "since": pd.to_datetime(["2020-01-01", "2021-02-03", "2022-03-04", "2023-04-05"], utc=True),
    }
)

GOOD: dict[str, Any] = {"size": 3.0, "rooms": 2, "garden": True, "code": "01", "since": "2021-02-03"}


def fitted(impute: bool = False) -> TableEncoder:
    encoder = TableEncoder(impute)
    encoder.fit(TRAINING, np.arange(4))
    return encoder


@pytest.mark.parametrize(
    ("column", "value", "error"),
    [
        ("size", "1,200", "'size' is '1,200', not a number"),
        ("size", None, "'size' has no value"),
        ("size", float("inf"), "'size' is 'inf', which is too large"),
        ("size", 1e39, "'size' is '1e+39', which is too large"),
        ("size", True, "'size' is 'True', not a number"),
        ("rooms", datetime.date(2020, 1, 1), "'rooms' is '2020-01-01', not a number"),
        ("garden", "perhaps", "'garden' is 'perhaps', not a number"),
        ("code", None, "'code' has no value"),
        ("code", "M\ufffd", "'code' is 'M\ufffd', which is not text in UTF-8 (--encoding names another)"),
        ("since", "2021-13-01", "'since' is '2021-13-01', not a date such as 2024-12-31"),
        ("since", 20210101, "'since' is '20210101', not a date such as 2024-12-31"),
    ],
    ids=str,
)
def test_what_is_wrong_with_a_row(column: str, value: Any, error: str) -> None:
    """Beside good rows, whose numbers are what they are alone."""
    encoder = fitted()
    judged = judge_rows(pd.DataFrame([GOOD, {**GOOD, column: value}, GOOD]), encoder.columns)
    assert judged.errors == {1: error}
    assert not judged.warnings
    found = encoder.transform(judged.frame.iloc[[0, 2]])
    alone = encoder.transform(judge_rows(pd.DataFrame([GOOD]), encoder.columns).frame)
    assert torch.equal(found, alone.expand(2, -1))
    assert found[0, :3].tolist() == [3, 2, 1]
    with pytest.raises(DataError, match=re.escape(f"row 1 (rows count from 0): {error}")):
        encoder.transform(pd.DataFrame([GOOD, {**GOOD, column: value}]))


@pytest.mark.parametrize(
    ("column", "value", "warning"),
    [
        ("size", -6, "'size' is '-6.0', far outside the training range, 1.5 to 8"),
        ("size", 14, None),
        ("size", np.inf, "'size' is missing, although no training row lacks it; it is filled in"),
        ("rooms", "8", "'rooms' is '8', far outside the training range, 1 to 4"),
        ("garden", False, None),
        (
            "since",
            "2029-1-1",
            "'since' is '2029-1-1', far outside the training range, 2020-01-01 to 2023-04-05",
        ),
        ("since", "2025-01-01", None),
        ("code", "y", "'code' is 'y', which no training row has: it counts as none of the known ones"),
        (
            "code",
            "X ",
            "'code' is 'X ', which no training row has (it has 'x'): it counts as none of the known ones",
        ),
    ],
)
def test_a_value_unlike_those_of_training_is_said(column: str, value: Any, warning: str | None) -> None:
    encoder = TableEncoder.from_plain(json.loads(json.dumps(fitted(impute=True).as_plain())))
    judged = judge_rows(pd.DataFrame([GOOD, {**GOOD, column: value}]), encoder.columns)
    assert judged.warnings == ({} if warning is None else {1: warning})
    assert not judged.errors


def test_all_is_as_the_encoder_has_it_where_nothing_is_wrong() -> None:
    """Whatever type a value comes in: judged rows are encoded as the training rows are."""
    encoder = fitted()
    judged = judge_rows(TRAINING.astype(object), encoder.columns)
    assert not judged.errors
    assert not judged.warnings
    assert torch.equal(encoder.transform(judged.frame), encoder.transform(TRAINING))


def test_what_is_missing_is_filled_in_where_training_did() -> None:
    encoder = fitted(impute=True)
    frame = pd.DataFrame([dict.fromkeys(GOOD), {**GOOD, "size": float("inf")}])
    judged = judge_rows(frame, encoder.columns)
    assert not judged.errors
    assert encoder.transform(judged.frame)[:, 0].tolist() == [3.25, 3.25]
    assert set(judge_rows(pd.DataFrame([{**GOOD, "size": 1e300}]), encoder.columns).errors) == {0}


@pytest.mark.parametrize(("text", "value"), [("1,5", 1.5), ("1.234", None), ("1.234,5", None), ("7", 7.0)])
def test_a_comma_for_a_decimal_point(text: str, value: float | None) -> None:
    frame = pd.DataFrame([{**GOOD, "size": text}, {**GOOD, "size": "?"}])
    judged = judge_rows(frame, fitted().columns, decimal=",")
    assert judged.frame["size"].tolist()[0] == pytest.approx(value, nan_ok=True) or value is None
    assert (0 in judged.errors) == (value is None)


@given(st.integers(0, 20), st.floats(0, 0.7))
@settings(max_examples=20)
def test_long_tails_are_mapped_by_their_quantiles(seed: int, zeros: float) -> None:
    """As scikit-learn's, but for values of many rows, which go to the middle of their ranks."""
    random = np.random.default_rng(seed)
    amount = np.where(random.random(400) < zeros, 0.0, random.lognormal(0, 2, 400))
    frame = pd.DataFrame({"amount": amount, "plain": random.normal(size=400)})
    encoder = TableEncoder(impute=True)
    encoder.fit(frame, np.arange(400))
    encoded = encoder.transform(frame).double().numpy()
    np.testing.assert_allclose(encoded[:, -1], frame["plain"], rtol=1e-6)
    assert encoder.notes == (
        "numbers with a long tail are mapped by their quantiles to a normal distribution: amount",
    )
    reference = QuantileTransformer(n_quantiles=256, output_distribution="normal").fit(frame[["amount"]])
    expected = reference.transform(frame[["amount"]])[:, 0]
    inside = (amount > np.quantile(amount, zeros + 0.05)) & (np.abs(expected) < 2)
    np.testing.assert_allclose(encoded[inside, 0], expected[inside], atol=0.02)
    is_zero = amount == 0
    if is_zero.mean() >= 0.1:
        assert encoder.feature_names[:2] == ["amount", "amount is 0"]
        np.testing.assert_array_equal(encoded[:, 1], is_zero)
        middle = NormalDist().inv_cdf(is_zero.mean() / 2)
        np.testing.assert_allclose(encoded[is_zero, 0], middle, atol=0.04)
    again = TableEncoder.from_plain(json.loads(json.dumps(encoder.as_plain())))
    assert torch.equal(again.transform(frame), encoder.transform(frame))


def misspelt(seed: int, rows: int = 600) -> pd.DataFrame:
    random = np.random.default_rng(seed)
    cities = ["hamburg", "munich", "berlin", "cologne", "stuttgart"]
    names = []
    for place in random.integers(0, 5, rows):
        letters = list(cities[place])
        letters.insert(random.integers(len(letters)), str(random.choice(list("abcdefgh"))))
        names.append("".join(letters) + str(random.integers(90)))
    return pd.DataFrame({"city": names, "size": random.normal(size=rows)})


def closest_city(name: str) -> str:
    return difflib.get_close_matches(name, ["hamburg", "munich", "berlin", "cologne", "stuttgart"], 1, 0)[0]


def test_misspelt_names_are_told_apart_by_their_n_grams(tmp_path: Path) -> None:
    """Names of one city are neighbours, also of those that were not learned from."""
    frame = misspelt(0)
    source = table_of(tmp_path, frame.assign(y=np.arange(600) % 7 / 4), "y")
    samples = source.read()["all"]
    (note,) = [note for note in source.notes if "n-grams" in note]
    assert "'data.source.exclude=[city]'" in note
    encoder: Any = samples.encoder
    encoder.fit(samples.raw, np.arange(500))
    encoded = encoder.transform(samples.raw)
    assert encoded.shape == (600, 31)
    assert encoder.feature_names[:2] == ["city, text 0", "city, text 1"]
    features = encoded[:, :30].double().numpy()
    cities = frame["city"].str.replace(r"\d", "", regex=True).map(closest_city)
    neighbours = KNeighborsClassifier(5, metric="cosine").fit(features[:500], cities[:500])
    assert neighbours.score(features[500:], cities[500:]) > 0.97
    again = TableEncoder.from_plain(json.loads(json.dumps(encoder.as_plain())))
    new = pd.DataFrame({"city": ["hambxurg3", None], "size": [0.0, 1.0]})
    assert torch.equal(again.transform(new), encoder.transform(new))
    assert again.transform(new)[1, :30].eq(0).all()


@pytest.mark.parametrize(("share", "kind"), [(0.0, "category"), (0.05, "category"), (0.3, "ngrams")])
def test_names_that_come_again_have_codes_unless_many_are_rare(
    tmp_path: Path, share: float, kind: str
) -> None:
    draw = np.random.default_rng(0)
    hospitals = [
        f"{town} {saint} {ward}" for town in ("Ulm", "Bonn") for saint in "ABCDE" for ward in "fghijk"
    ]
    names = np.resize(hospitals, 600).astype(object)
    rare = draw.permutation(600)[: int(share * 600)]
    names[rare] = [
        f"{name}{letter}" for name, letter in zip(names[rare], draw.choice(list("xyz"), 600), strict=False)
    ]
    frame = pd.DataFrame({"hospital": names, "y": draw.normal(size=600)})
    (column,) = encoder_of(table_of(tmp_path, frame, "y")).columns
    assert column.kind == kind


def test_random_ids_are_left_out(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    ids = ["".join(random.choice(list("0123456789abcdef"), 12)) for _ in range(600)]
    source = table_of(tmp_path, misspelt(0).assign(city=ids, y=np.arange(600) % 7 / 4), "y")
    assert list(source.read()["all"].raw) == ["size"]
    assert any(note.startswith("left out of the features: city (ids or names") for note in source.notes)


def test_integers_that_are_codes_by_their_names_are_categories(tmp_path: Path) -> None:
    frame = pd.DataFrame(
        {"product_code": np.arange(200) % 20 + 1000, "barcode_code": np.arange(200) * 7 % 199}
    )
    source = table_of(tmp_path, frame.assign(count=np.arange(200) % 30, y=np.arange(200) % 7 / 4), "y")
    encoder: Any = encoder_of(source)
    kinds = {column.name: column.kind for column in encoder.columns}
    assert kinds == {"product_code": "category", "barcode_code": "number", "count": "number"}
    assert (
        "integers taken as categories, by their names: product_code; as numbers: "
        "'data.source.keep=[product_code]'"
    ) in source.notes
    kept: Any = encoder_of(Table(str(tmp_path / "rows.csv"), "y", keep=["product_code"]))
    assert {column.kind for column in kept.columns} == {"number"}
    without = Table(str(tmp_path / "rows.csv"), "y", exclude=["product_code"])
    assert list(without.read()["all"].raw) == ["barcode_code", "count"]
    assert not any("product_code" in note for note in without.notes)


@pytest.mark.parametrize("make", [lambda number: number, lambda number: f"S{number}"])
def test_ids_that_come_again_are_categories(tmp_path: Path, make: Callable[[int], Any]) -> None:
    draw = np.random.default_rng(0)
    numbers = draw.integers(1000, 1030, 600)
    frame = pd.DataFrame(
        {
            "store_id": [make(number) for number in numbers],
            "row_id": [make(number) for number in draw.permutation(600)],
            "pair_id": [make(number) for number in draw.permutation(600) // 2],
            "x": draw.normal(size=600),
            "y": draw.normal(size=600),
        }
    )
    source = table_of(tmp_path, frame, "y")
    encoder = encoder_of(source)
    assert {column.name: column.kind for column in encoder.columns} == {"store_id": "category", "x": "number"}
    assert (
        "ids that come again in several rows are taken as categories: store_id (30 values); without: "
        "'data.source.exclude=[store_id]'"
    ) in source.notes
    (note,) = [note for note in source.notes if "left out" in note]
    assert "row_id (ids" in note
    assert "pair_id (ids" in note
    assert source.read()["all"].split_hints["store_id"] == "group"
    for options in ({"exclude": ["store_id"]}, {"max_categories": 20}):
        assert [
            column.name for column in encoder_of(Table(str(tmp_path / "rows.csv"), "y", **options)).columns
        ] == ["x"]


@pytest.mark.parametrize(
    ("word", "suffix"),
    [*zip(["?", " ?", "-", ".", "unknown", "Missing", "NA ", "n/a"], cycle([".csv", ".parquet", ".jsonl"]))],
)
def test_well_known_words_among_numbers_are_missing_values(tmp_path: Path, word: str, suffix: str) -> None:
    draw = np.random.default_rng(0)
    numbers = draw.normal(size=300).round(3)
    frame = pd.DataFrame(
        {"size": numbers.astype(str), "maker": draw.choice(["a", "b"], 300), "y": numbers**2}
    )
    frame.loc[::30, "size"] = word
    frame.loc[1::100, "maker"] = word
    source = Table(write_table(frame, tmp_path / f"rows{suffix}"), "y")
    encoder = encoder_of(source)
    assert any(
        f"read as missing: size ({word!r}, 10 rows), maker ({word!r}, 3 rows)" in note
        for note in source.notes
    )
    inputs = named_inputs(encoder, source.read()["all"].raw)
    assert inputs["size is missing"].tolist() == [float(row % 30 == 0) for row in range(300)]
    assert inputs["maker=missing"].sum() == 3
    np.testing.assert_allclose(inputs["size"][1:30], numbers[1:30], rtol=1e-6)
    new = pd.DataFrame({"size": ["0.5", word, "low"], "maker": ["a", word, "c"]})
    judged = judge_rows(prepare_rows(new, encoder.columns, "auto"), encoder.columns)
    assert list(judged.errors) == [2]
    assert judged.frame.isna().any(axis=1).tolist() == [False, True, True]
    assert text_codes(encoder.columns[1])[word] == encoder.columns[1].codes[""]


def test_rows_outside_of_training_change_nothing_that_is_learned(tmp_path: Path) -> None:
    learned = []
    for seed in (1, 2):
        frame = pd.concat([misspelt(0, 500), misspelt(seed, 100)], ignore_index=True)
        path = tmp_path / f"{seed}.csv"
        frame.assign(y=np.arange(600) % 7 / 4).to_csv(path, index=False)
        samples = Table(str(path), "y").read()["all"]
        encoder: Any = samples.encoder
        encoder.fit(samples.raw, np.arange(500))
        learned.append(encoder.as_plain())
    assert learned[0] == learned[1]
    assert learned[0]["columns"][0]["kind"] == "ngrams"


def test_a_wide_table_is_read_without_a_warning() -> None:
    frame = pd.DataFrame(np.random.default_rng(0).normal(size=(20, 300))).add_prefix("x")
    encoder = TableEncoder()
    encoder.fit(frame, np.arange(10))
    judged = judge_rows(frame, encoder.columns)  # pandas warns of many columns that are added one by one
    pd.testing.assert_frame_equal(judged.frame, frame, check_names=False)


def test_an_empty_column_does_not_name_images(tmp_path: Path) -> None:
    table = pd.DataFrame({"x": np.arange(40) / 7, "photo": [np.nan] * 40, "y": ["a", "b"] * 20})
    source = table_of(tmp_path, table, "y")
    source.read()
    (note,) = [note for note in source.notes if note.startswith("left out of the features")]
    assert note == "left out of the features: photo (no value in any row)"


def test_months_around_the_turn_of_a_year_are_not_missing() -> None:
    months = np.resize(["Nov-15", "Dec-15", "Jan-16"], 60)
    table = pd.DataFrame({"month": months, "size": np.arange(60) / 7, "y": ["a", "b"] * 30})
    chosen = choose_features(table, ColumnOptions(["y"]), "rows.csv")
    assert chosen.forms == {"month": "%b-%y"}
    assert not any("possible codes" in note for note in chosen.notes)


@pytest.mark.parametrize("ending", ["csv", "parquet"])
@pytest.mark.parametrize(
    "mark", ["X", 1, True, pd.Timestamp("2020-03-01"), "The customer has asked for a reminder by letter."]
)
def test_a_mark_in_some_rows_is_a_feature(tmp_path: Path, ending: str, mark: object) -> None:
    """Rows without the one value say something as well; only where almost none lacks it do they not."""
    rows = 60
    marked = pd.Series([mark if row % 3 else None for row in range(rows)])
    almost = pd.Series([mark if row % 10 else None for row in range(rows)])
    table = pd.DataFrame({"marked": marked, "almost": almost, "size": range(rows), "y": ["a", "b"] * 30})
    source = Table(write_table(table, tmp_path / f"rows.{ending}"), "y")
    samples = source.read()["all"]
    (left_out,) = [note for note in source.notes if note.startswith("left out of the features")]
    assert "almost (one value in 54 rows, none in the others)" in left_out
    encoder: Any = samples.encoder
    encoder.fit(samples.raw, np.arange(rows))
    encoded = named_inputs(encoder, samples.raw).filter(regex="^marked").drop_duplicates()
    assert encoded.index.tolist() == [0, 1]


@pytest.mark.parametrize(
    ("texts", "is_told"),
    [
        ([f"{feet}'{inches}\"" for feet in (4, 5, 6) for inches in range(12)], True),
        ([f"{hours}h {minutes}m" for hours in range(4) for minutes in range(0, 60, 5)], True),
        ([f"{low}-{low + 4}" for low in range(600, 800, 5)], True),
        ([f"B{number:02}" for number in range(40)], False),
        ([f"{number:04}" for number in range(40)], False),
        (["1 shared bath", "2 baths", "1.5 baths"], False),  # few
    ],
)
def test_measures_that_are_taken_as_categories_are_told(texts: list[str], is_told: bool) -> None:
    rows = 600
    table = pd.DataFrame({"x": np.arange(rows) / 7, "size": np.resize(texts, rows), "y": ["a", "b"] * 300})
    for typed in ([], ["size"]):
        chosen = choose_features(table, ColumnOptions(["y"], categories=typed), "rows.csv")
        (*_, told) = ["", *(note for note in chosen.notes if "begin with numbers" in note)]
        assert (f"size such as {texts[0]!r}" in told) == (is_told and not typed)


@pytest.mark.parametrize(
    "texts", [["Yes", "yes", "No"], ["a ", "a", "b"], ["no", "no ", "yes"], ["Über", "über", "unter"]]
)
def test_classes_that_differ_only_in_case_or_spaces_are_refused(tmp_path: Path, texts: list[str]) -> None:
    table = pd.DataFrame({"x": np.arange(60) / 7, "churn": np.resize(texts, 60)})
    said = "data.source.target=churn: classes of 'churn' differ only in case or spaces: "
    with pytest.raises(DataError, match=f"{said}'{texts[0]}', '{texts[1]}'") as caught:
        table_of(tmp_path, table, "churn").read()
    assert "data.source.task=multiclass takes them" in caught.value.hint
    source = table_of(tmp_path, table, "churn", task="multiclass")
    source.read()
    assert source.class_names == tuple(sorted(texts))


@pytest.mark.parametrize(
    "values", [[f"C{n * 7}" for n in range(60)], [f"the {n}th remark of some length" for n in range(60)]]
)
def test_ids_and_texts_with_gaps_say_whether_a_row_has_one(tmp_path: Path, values: list[str]) -> None:
    """The cabin of a passenger: which one says nothing of others, that there is one does."""
    table = pd.DataFrame({"size": np.arange(60) / 7, "cabin": values, "y": ["a", "b"] * 30})
    table.loc[table.index % 3 > 0, "cabin"] = None
    source = table_of(tmp_path, table, "y")
    samples = source.read()["all"]
    (left_out,) = [note for note in source.notes if note.startswith("left out of the features: cabin")]
    assert "whether a row has one is a feature" in left_out
    encoder: Any = samples.encoder
    encoder.fit(samples.raw, np.arange(30))
    new = pd.DataFrame({"size": [1.0, 1.0, 1.0], "cabin": [values[3], "never seen", None]})
    judged = judge_rows(new, encoder.columns)
    assert not judged.warnings
    codes = in_columns(encoder, encoder.encode(judged.frame))[:, -2:].tolist()
    assert codes == [[0, 1], [0, 1], [1, 0]]


def test_texts_of_few_words_become_as_many_numbers_as_they_hold() -> None:
    """Directions beyond these are noise of 1e-40, which scaled to a deviation of 1 is infinite."""
    draw = np.random.default_rng(0)
    words = ["Bonn", "Essen", "Köln", "Trier", "Süd", "West", "Ufer"]
    texts = pd.Series([" ".join(draw.choice(words, 4)) for _ in range(400)], name="where")
    encoder = TableEncoder(impute=True, features=Features([], ngrams=["where"]))
    encoder.fit(texts.to_frame(), np.arange(280))
    inputs = encoder.transform(texts.to_frame())
    assert 2 <= inputs.shape[1] <= len(words)
    assert inputs.std(0).min() > 1e-3


def test_a_category_without_a_value_in_training_says_that_it_knows_none() -> None:
    frame = pd.DataFrame({"maker": ["a", "?"]})
    encoder = TableEncoder(impute=True)
    encoder.fit(frame.where(frame == "none"), np.arange(2))
    judged = judge_rows(frame, encoder.columns)
    assert list(judged.warnings) == [0]
    assert "which no training row has" in judged.warnings[0]
