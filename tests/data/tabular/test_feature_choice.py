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
