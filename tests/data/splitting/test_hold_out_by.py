"""Groups stay whole and classes in proportion; the latest samples are taken, ties together."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from assay.data.divide import hold_out_groups, hold_out_latest
from assay.errors import DataError


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("fraction", [0.1, 0.25, 0.5])
def test_groups_are_whole_and_classes_in_proportion(seed: int, fraction: float) -> None:
    rng = np.random.default_rng(seed)
    groups = rng.integers(0, 60, 900)
    labels = (rng.random(900) < 0.1 + 0.4 * (groups % 2)).astype(np.int64)  # groups differ in their classes
    rest, subset = hold_out_groups(np.arange(900), fraction, labels, groups, seed=seed, subset="test")
    assert sorted([*rest, *subset]) == list(range(900))
    assert not set(groups[rest]) & set(groups[subset])
    assert len(subset) / 900 == pytest.approx(fraction, abs=0.03)
    assert labels[subset].mean() == pytest.approx(labels.mean(), abs=0.03)
    again = hold_out_groups(np.arange(900), fraction, labels, groups, seed=seed, subset="test")[1]
    other = hold_out_groups(np.arange(900), fraction, labels, groups, seed=seed + 1, subset="test")[1]
    assert subset.tolist() == again.tolist() != other.tolist()


def test_few_large_groups() -> None:
    groups = np.repeat([0, 1, 2], [80, 15, 5])
    for fraction in (0.01, 0.1, 0.9):
        rest, subset = hold_out_groups(np.arange(100), fraction, None, groups, seed=0, subset="val")
        assert len(rest)
        assert len(subset)
    assert len(hold_out_groups(np.arange(100), 0.0, None, groups, seed=0, subset="val")[1]) == 0
    with pytest.raises(DataError, match=r"data\.split\.val: 1 group") as caught:
        hold_out_groups(np.arange(80), 0.1, None, groups, seed=0, subset="val")
    assert "data.split.group=null" in (caught.value.hint or "")


def test_latest_with_ties() -> None:
    times = pd.Series([5, 1, 2, 2, 2, 3, 4, 4, 5, 5])
    rest, subset = hold_out_latest(np.arange(10), 0.2, times, "test")
    assert subset.tolist() == [0, 8, 9]  # ties stay together: 3 is as near to 2 as ties allow
    assert times[rest].max() < times[subset].min()
    rest, subset = hold_out_latest(rest, 0.25, times, "val")
    assert subset.tolist() == [6, 7]
    with pytest.raises(DataError, match="all of one time"):
        hold_out_latest(np.array([2, 3]), 0.5, times, "val")
