from __future__ import annotations

from decimal import Decimal
from typing import Any

import pandas as pd
import pytest

from assay.data.tabular.column_kind import kind_of, looks_like_number, plain_numbers

MANY = range(1, 41)
COLUMNS: list[tuple[str, str, Any]] = [
    ("number", "height", [n / 7 for n in MANY]),
    ("number", "rooms", [1, 2, 3] * 9),
    ("number", "customer_id", [1, 2, 3] * 9),  # few values: perhaps a kind of customer
    ("number", "garden", [True, False] * 9),
    ("number", "square", [n * n for n in MANY]),
    ("number", "infinite", [float("inf"), *MANY]),
    ("number", "amount", [10**9 + 7 * n for n in MANY]),
    ("id", "customer_id", [n * n for n in MANY]),
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
    ("text", "mail", [f"person{n}@example.org" for n in MANY]),
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
    found, why = kind_of(pd.Series(values, name=name))
    assert found == kind, why
    assert bool(why) == (kind not in ("number", "category"))


@pytest.mark.parametrize(("kind", "name", "values"), [one for one in COLUMNS if one[1] != "garden"])
def test_gaps_change_nothing_about_it(kind: str, name: str, values: Any) -> None:
    column = pd.Series([*values, None], name=name)
    assert kind_of(column)[0] == kind


@pytest.mark.parametrize("text", ["1", "-1.5", "$1,200.50", "12 %", "1 200,5 €", "5kg", "10 cm", "1'000"])
def test_numbers_with_a_sign(text: str) -> None:
    assert looks_like_number(text)


@pytest.mark.parametrize("text", ["", "A12", "12 Main Street", "one", "1-2", "-"])
def test_texts(text: str) -> None:
    assert not looks_like_number(text)


def test_decimals_become_floats() -> None:
    frame = pd.DataFrame({"price": [Decimal("1.25"), None], "mixed": [Decimal(1), "x"], "name": ["a", "b"]})
    found = plain_numbers(frame.copy())
    assert found["price"].dtype == float
    assert found["price"].tolist()[0] == 1.25
    pd.testing.assert_frame_equal(found[["mixed", "name"]], frame[["mixed", "name"]])
