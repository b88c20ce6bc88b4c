"""What configurations differ in, as numbers or words."""

from __future__ import annotations

import numpy as np
import pytest
from tests.report.sweep.made import contents, job

from assay.report.read_sweep import ranked
from assay.report.sweep_figures import Column, columns_of


def columns(values: list[dict[str, str]], **scales: bool) -> dict[str, Column]:
    groups = ranked(contents([job(str(n), one, float(n)) for n, one in enumerate(values)]))
    return {column.key: column for column in columns_of(groups, scales)}


def test_numbers_words_and_what_is_missing() -> None:
    found = columns([{"lr": "0.1", "model": "a"}, {"lr": "1e-3", "model": "b", "hidden": "32"}])
    lr, model, hidden = found.values()
    assert model.values == ("a", "b")
    assert (lr.values, lr.is_number) == ((0.1, 0.001), True)
    assert hidden.values == ("–", "32")


def test_nan_and_infinity_are_words() -> None:
    (column,) = columns([{"x": "nan"}, {"x": "1"}, {"x": "inf"}]).values()
    assert column.values == ("nan", "1", "inf")


def test_what_all_share_is_left_out() -> None:
    assert list(columns([{"a": "1", "b": "1.0"}, {"a": "1.0", "b": "2"}])) == ["b"]


@pytest.mark.parametrize("seed", range(5))
def test_an_axis_is_logarithmic_where_values_were_drawn_so(seed: int) -> None:
    draw = np.random.default_rng(seed)
    rows = [{"log": repr(10 ** draw.uniform(-5, -1)), "even": repr(draw.uniform(0, 1))} for _ in range(60)]
    found = columns(rows)
    assert found["log"].is_log
    assert not found["even"].is_log
    assert columns(rows, even=True, log=False)["even"].is_log


def test_a_grid_of_decades_is_logarithmic_and_one_with_zero_is_not() -> None:
    found = columns([{"lr": f"1e-{3 - number}", "decay": str(number)} for number in range(3)])
    assert found["lr"].is_log
    assert not found["decay"].is_log


@pytest.mark.parametrize(
    ("key", "values", "is_log"),
    [
        ("optimizer.lr", ["0.001", "0.003", "0.01"], True),
        ("optimizer.lr", ["0.001", "0.002"], True),
        ("model.hidden", ["32", "64", "128", "256"], True),
        ("model.dropout", ["0.1", "0.3", "0.5"], False),
        ("model.depth", ["2", "3", "4"], False),
        ("optimizer.weight_decay", ["0", "0.01"], False),
    ],
)
def test_rates_and_sizes_that_double_are_compared_by_their_ratios(
    key: str, values: list[str], is_log: bool
) -> None:
    assert columns([{key: value} for value in values])[key].is_log is is_log
