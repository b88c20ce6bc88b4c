from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import pytest

from assay.data.tabular.feature_choice import leak

if TYPE_CHECKING:
    from collections.abc import Callable

DRAW = np.random.default_rng(0)
PRICE, KIND = pd.Series(DRAW.normal(300, 50, 200)), pd.Series(DRAW.choice(["a", "b", "c"], 200))


@pytest.mark.parametrize(
    ("target", "make", "how"),
    [
        (PRICE, lambda y: y, "equal"),
        (KIND, lambda y: y, "equal"),
        (KIND, lambda y: y.map({"a": 3, "b": 1, "c": 2}), "3 values stands for one"),
        (KIND, lambda y: y.str.upper(), "3 values stands for one"),
        (PRICE, lambda y: y / 1000, "1000 times it"),
        (PRICE, lambda y: 32 - 1.8 * y, "times it, plus a constant"),
        (PRICE, lambda y: (y / 7).mask(y > 320), "7 times it"),
    ],
)
def test_the_target_under_another_name(target: pd.Series, make: Callable[..., pd.Series], how: str) -> None:
    frame = pd.DataFrame({"noise": DRAW.normal(size=200), "other": make(target), "y": target})
    name, said = leak(frame, ["noise", "other"], "y")
    assert name == "other"
    assert how in said


@pytest.mark.parametrize(
    ("target", "feature"),
    [
        (PRICE, PRICE + DRAW.normal(0, 0.01, 200)),
        (PRICE, PRICE**2),
        (PRICE, pd.Series(np.ones(200))),
        (PRICE, PRICE.where(PRICE < 300, np.inf)),
        (KIND, KIND.where(KIND.index > 0, "c" if KIND[0] != "c" else "a").str.upper()),
        (KIND, KIND.map({"a": 1, "b": 1, "c": 2})),
        (pd.Series(["same"] * 200), pd.Series(["same"] * 200)),
        (PRICE, PRICE.where(PRICE.index < 19)),
    ],
    ids=["noise", "a square", "constant", "infinite", "one row", "coarser", "one value", "too few rows"],
)
def test_what_only_goes_along_with_it(target: pd.Series, feature: pd.Series) -> None:
    assert leak(pd.DataFrame({"x": feature, "y": target}), ["x"], "y") == ("", "")
