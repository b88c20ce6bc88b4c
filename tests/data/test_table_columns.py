"""What columns hold, how dates are written, which columns are features, and what a target is."""

from __future__ import annotations

import re
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pytest

from assay.data.table import Table
from assay.data.tabular.column_kind import (
    ColumnOptions,
    choose_features,
    drop_missing_targets,
    find_format,
    find_leak,
    kind_of,
    looks_like_number,
    parse_dates,
    plain_numbers,
    task_of_columns,
)
from assay.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

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
    ("unclear", "price", [f"${n},000" for n in MANY]),
    ("unclear", "share", [f"{n} %" for n in MANY]),
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


def test_numbers_with_a_sign_and_texts() -> None:
    numbers = ["1", "-1.5", "$1,200.50", "12 %", "1 200,5 €", "5kg", "10 cm", "1'000"]
    texts = ["", "A12", "12 Main Street", "one", "1-2", "-"]
    assert [text for text in [*numbers, *texts] if looks_like_number(text)] == numbers


def test_decimals_become_floats() -> None:
    frame = pd.DataFrame({"price": [Decimal("1.25"), None], "mixed": [Decimal(1), "x"], "name": ["a", "b"]})
    found = plain_numbers(frame.copy())
    assert found["price"].dtype == float
    assert found["price"].tolist()[0] == 1.25
    pd.testing.assert_frame_equal(found[["mixed", "name"]], frame[["mixed", "name"]])


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


def test_dates_of_several_forms_are_refused() -> None:
    mixed = pd.Series(["2024-01-05", "05.01.2024", "6 Jan 2024"], name="day")
    with pytest.raises(DataError, match=r"'day' are not all in one .* '2024-01-05'"):
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


PRICES = [f"{price:,}.50" for price in range(100_000, 140_000, 1_000)]
AREAS = [*map(str, range(38)), "unknown", "n/k"]


@pytest.mark.parametrize(("time", "parts"), [("", "weekday and days"), (" 12:30", "weekday, hour and days")])
def test_the_hour_is_announced_where_dates_have_a_time(time: str, parts: str) -> None:
    days = [f"2024-05-{day:02}{time}" for day in range(1, 29)]
    (note,) = choose_features(
        pd.DataFrame({"y": range(28), "day": days}), ColumnOptions(["y"]), "rows.csv"
    ).notes
    assert note.startswith(f"dates become year, month, {parts} since the first")


@pytest.mark.parametrize("asked", [{}, {"exclude": ["either"], "keep": ["remark"]}])
def test_columns_that_may_be_numbers_are_told_together(asked: dict[str, Any]) -> None:
    frame = FRAME.assign(price=PRICES, area=AREAS)
    with pytest.raises(DataError) as caught:
        choose_features(frame, ColumnOptions(["y"], day_first=True, **asked), "rows.csv")
    message, hint = caught.value.message, caught.value.hint
    assert "the column 'price' is text such as '100,000.50', but looks like numbers" in message
    assert "the column 'area' is text such as 'unknown', but looks like numbers" in message
    assert "data.source.na_values=[unknown,n/k]" in hint
    assert f"data.source.exclude=[{','.join([*asked.get('exclude', []), 'price', 'area'])}]" in hint
    assert f"data.source.keep=[{','.join([*asked.get('keep', []), 'price', 'area'])}]" in hint
    with pytest.raises(DataError) as stored:
        choose_features(FRAME.assign(area=[*map(str, range(40))]), ColumnOptions(["y"], day_first=True), "x")
    assert stored.value.hint.startswith("remove signs of units and of thousands, or store numbers; ")


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
        ([f"{price:,} €" for price in range(1000, 1030)], "looks like numbers"),
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
    table.to_csv(tmp_path / "rows.csv", index=False)
    source = Table(str(tmp_path / "rows.csv"), "price")
    source.read()
    assert "categories of 'city' differ only in case or spaces: 'Essen', 'essen '" in source.notes


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ([-999, 1, 5, 3], "-999, 10 times"),
        ([1.5, 99_999, 0.25, 7], "99999, 10 times"),
        ([-99, 0, 1619, 420.5], "-99, 10 times"),  # the only one below 0
        ([-99, -1, 1619, 420], ""),
        ([999, 950, 1, 420], ""),  # not far from the others
        ([-999.5, 1, 5, 3], ""),
        ([20, 30, 90, 99], ""),
    ],
)
@pytest.mark.parametrize("name", ["size", "price"])  # a feature, the target
def test_a_number_that_may_stand_for_a_missing_value_is_told(
    tmp_path: Path, values: list[float], said: str, name: str
) -> None:
    draw = np.random.default_rng(0)
    table = pd.DataFrame({column: draw.normal(size=40) for column in ("size", "rooms", "price")})
    table[name] = np.resize(values, 40)
    table.to_csv(tmp_path / "rows.csv", index=False)
    source = Table(str(tmp_path / "rows.csv"), "price", task="regression")
    source.read()
    told = [note for note in source.notes if "unlike all others" in note]
    assert [f"{name} ({said})" in note for note in told] == ([True] if said else [])
    for value in re.findall(r"data\.source\.na_values=\[(.*)\]", "".join(told)):
        mended = Table(str(tmp_path / "rows.csv"), "price", task="regression", na_values=[value])
        mended.read()
        assert not any("unlike all others" in note for note in mended.notes)
