from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

from assay.data.tabular.feature_choice import Asked, choose_features
from assay.errors import DataError

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


def test_what_is_decided_of_each_column() -> None:
    chosen = choose_features(FRAME, Asked(["y"], day_first=True), "rows.csv")
    assert chosen.names == ["x", "day", "either", "grade"]
    assert chosen.forms == {"day": "%d/%m/%Y", "either": "%d/%m/%Y"}
    assert "remark (free text" in chosen.notes[0]
    assert "same (one value in all rows)" in chosen.notes[0]
    hashed = choose_features(FRAME, Asked(["y"], hash_text=True, exclude=["either"]), "rows.csv")
    assert (hashed.texts, "remark" in hashed.names) == (["remark"], True)


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({}, "is the day or the month first"),
        ({"categories": ["xx"]}, r"data\.source\.categories: rows\.csv has no column 'xx'"),
        ({"categories": ["y"]}, "'y' is the target"),
        ({"features": ["x"], "exclude": ["x"]}, "no column is left to predict from"),
    ],
)
def test_what_is_asked_about(asked: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError, match=message):
        choose_features(FRAME, Asked(["y"], **asked), "rows.csv")


PRICES = [f"{price:,}.50" for price in range(100_000, 140_000, 1_000)]
AREAS = [*map(str, range(38)), "unknown", "n/k"]


@pytest.mark.parametrize("asked", [{}, {"exclude": ["either"], "keep": ["remark"]}])
def test_columns_that_may_be_numbers_are_told_together(asked: dict[str, Any]) -> None:
    frame = FRAME.assign(price=PRICES, area=AREAS)
    with pytest.raises(DataError) as caught:
        choose_features(frame, Asked(["y"], day_first=True, **asked), "rows.csv")
    message, hint = caught.value.message, caught.value.hint
    assert "the column 'price' is text such as '100,000.50', but looks like numbers" in message
    assert "the column 'area' is text such as 'unknown', but looks like numbers" in message
    assert "data.source.na_values=[unknown,n/k]" in hint
    assert "remove signs of units and of thousands" in hint
    assert f"data.source.exclude=[{','.join([*asked.get('exclude', []), 'price', 'area'])}]" in hint
    assert f"data.source.keep=[{','.join([*asked.get('keep', []), 'price', 'area'])}]" in hint


def test_numbers_that_are_stored_as_text() -> None:
    with pytest.raises(DataError, match="looks like numbers") as caught:
        choose_features(
            FRAME.assign(area=[*map(str, range(40))]), Asked(["y"], day_first=True), "rows.parquet"
        )
    assert caught.value.hint.startswith("store them as numbers, not as text; ")


@pytest.mark.parametrize(("option", "used"), [("exclude", 0), ("keep", 2)])
def test_what_is_offered_for_them_is_a_way_on(option: str, used: int) -> None:
    options: dict[str, Any] = {option: ["price", "area"]}
    frame = FRAME.assign(price=PRICES, area=AREAS)
    chosen = choose_features(frame, Asked(["y"], day_first=True, **options), "rows.csv")
    assert len({"price", "area"} & {*chosen.names}) == used


def test_a_way_on_keeps_what_was_typed_before() -> None:
    frame = FRAME.assign(twin=FRAME["y"] * 2)
    with pytest.raises(DataError) as caught:
        choose_features(frame, Asked(["y"], exclude=["either"], day_first=True), "rows.csv")
    assert "data.source.exclude=[either,twin]" in caught.value.hint
