"""Intervals and p-values, against scipy.stats."""

from __future__ import annotations

import math
import statistics
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scipy import stats  # type: ignore[import-untyped]  # scipy has no types

from assay.analysis.objective import Objective, format_score, read_objectives, score_text, scores_of
from assay.analysis.statistics import fold_gap, have_same_folds, importance, mean_of, welch_gap
from assay.record.run_record import Outcome

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray


scores = st.lists(st.integers(-10_000, 10_000).map(lambda number: number / 1000), min_size=2, max_size=12)


@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(scores)
def test_the_interval_is_students(values: Sequence[float]) -> None:
    found = mean_of(values)
    assert found is not None
    error = stats.sem(values)
    assert found.n == len(values)
    if error == 0:
        assert found.low == pytest.approx(found.mean)
        return
    low, high = stats.t.interval(0.95, len(values) - 1, loc=sum(values) / len(values), scale=error)
    assert (found.low, found.high) == pytest.approx((low, high), rel=1e-9, abs=1e-12)


@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(scores, scores)
def test_the_p_value_is_welchs(one: Sequence[float], other: Sequence[float]) -> None:
    found = welch_gap(one, other)
    if len(set(one)) == len(set(other)) == 1:
        assert found is None
        return
    assert found is not None
    both = ((statistics.fmean(values), statistics.stdev(values), len(values)) for values in (one, other))
    expected = stats.ttest_ind_from_stats(*next(both), *next(both), equal_var=False).pvalue
    assert math.isclose(found.p_value, expected, rel_tol=1e-7, abs_tol=1e-12)


def test_too_few() -> None:
    assert welch_gap([0.5], [0.1, 0.2]) is None
    assert mean_of([math.nan, None, math.inf]) is None
    one = mean_of([0.5, math.nan, None, -math.inf])
    assert one is not None
    assert (one.mean, one.std, one.low, one.half_width) == (0.5, None, None, None)


def test_seeds_of_a_fold_count_once() -> None:
    """The mean over folds of the means over seeds, with scipy's interval of as many values as folds."""
    drawn = np.random.default_rng(0).normal(size=(5, 3))
    found = mean_of(drawn.ravel(), np.repeat(range(5), 3))
    means = drawn.mean(1)
    low, high = stats.t.interval(0.95, 4, means.mean(), stats.sem(means))
    assert found is not None
    assert (found.n, found.mean, found.low, found.high) == pytest.approx((5, means.mean(), low, high))
    alone = mean_of(drawn[0], [2, 2, 2])  # one fold: its seeds are all there is
    assert alone is not None
    assert alone.values == tuple(drawn[0])
    assert mean_of([1.0, None], [0, 1]) == mean_of([1.0])


def test_configurations_over_the_same_folds_are_compared_fold_by_fold() -> None:
    first, second = [0.91, 0.82, 0.95, 0.88, 0.79], [0.90, 0.80, 0.93, 0.88, 0.78]
    one, other = mean_of(first, [0, 1, 2, 3, 4]), mean_of(second[::-1], [4, 3, 2, 1, 0])
    assert one is not None
    assert other is not None
    assert have_same_folds(one, other)
    plain = stats.ttest_rel(first, second)
    t = plain.statistic * math.sqrt((1 / 5) / (1 / 5 + 1 / 4))
    gap = fold_gap(one, other)
    assert gap is not None
    assert gap.p_value == pytest.approx(2 * stats.t.sf(abs(t), 4), rel=1e-12)
    unpaired = mean_of(second)
    assert unpaired is not None
    assert not have_same_folds(one, unpaired)


DRAW = np.random.default_rng(0)
LR, NOISE = DRAW.uniform(-4, -1, 60), DRAW.uniform(0, 1, 60)
MODEL = DRAW.choice(["cnn", "mlp"], 60)
CONFIGURATIONS = [
    {"noise": str(noise), "model": str(model), "lr": str(10**lr), "data": "digits"}
    for noise, model, lr in zip(NOISE, MODEL, LR, strict=True)
]


def test_what_the_score_depends_on_comes_first() -> None:
    scores = (LR + 2.5) ** 2 + 0.3 * (MODEL == "cnn")
    shares, message = importance(CONFIGURATIONS, scores.tolist())
    assert [key for key, _ in shares] == ["lr", "model", "noise"]
    assert shares[0][1] > 0.5
    assert shares[2][1] < 0.1
    assert "60 configurations" in message
    order = np.random.default_rng(1).permutation(60)
    assert importance([CONFIGURATIONS[at] for at in order], scores[order].tolist()) == (shares, message)


@pytest.mark.parametrize(
    ("scores", "message"),
    [
        (LR[:9], "9 finished configurations are too few"),
        (0 * LR, "All finished configurations have the same score."),
        (np.random.default_rng(2).normal(size=60), "cannot predict"),
    ],
    ids=["few", "equal", "noise"],
)
def test_without_importance(scores: NDArray[np.float64], message: str) -> None:
    shares, told = importance(CONFIGURATIONS[: len(scores)], scores.tolist())
    assert not shares
    assert message in told


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("test/accuracy", 0.5, "50.00 %"),
        ("val/f1", 1.0, "100.00 %"),
        ("test/loss", 0.000123456, "0.0001235"),
        ("test/rmse", 57.4321, "57.43"),
        ("test/mae", 607270.0, "607,270"),
        ("test/mse", 9.91600123e8, "991,600,123"),
        ("test/loss", -0.0, "0"),
        ("test/loss", 2.7e-7, "2.7e-07"),
    ],
)
def test_format_score(name: str, value: float, text: str) -> None:
    assert format_score(name, value) == text


@pytest.mark.parametrize(
    ("name", "values", "text"),
    [
        ("val/loss", (0.98611,), "0.9861"),
        ("val/loss", (0.95, 0.96, 0.97), "0.960 ± 0.025"),
        ("val/accuracy", (0.98611,), "98.61 %"),
        ("val/accuracy", (0.95, 0.96, 0.97), "96.0 ± 2.5 %"),
        ("loss", (8000.0, 8100.0), "8,050 ± 640"),
        ("loss", (1e-7, 2e-7), "1.5e-07 ± 6.4e-07"),
    ],
)
def test_score_text(name: str, values: tuple[float, ...], text: str) -> None:
    mean = mean_of(values)
    assert mean is not None
    assert score_text(name, mean) == text


LOSS = Objective("val/loss", "minimize")
ACCURACY = Objective("val/accuracy", "maximize")


def test_the_best_checkpoint_counts_where_the_objective_is_what_it_is_kept_by() -> None:
    outcome = Outcome(
        "finished", metrics={"val/loss": 0.5}, best={"monitor": "val/loss", "value": 0.3, "epoch": 1}
    )
    assert LOSS.score(outcome) == 0.3
    assert ACCURACY.score(outcome) is None
    assert scores_of(outcome, [LOSS]) == [0.3]
    assert scores_of(outcome, [LOSS, ACCURACY]) is None
    assert LOSS.score(Outcome("finished", metrics={"val/loss": float("nan")})) is None


def test_what_is_best_is_known_from_the_name() -> None:
    aims = read_objectives({"objective": ["val/loss", "val/accuracy", "train/mae"]}, {})
    assert [aim.direction for aim in aims] == ["minimize", "maximize", "minimize"]
    assert read_objectives({"objective": "x", "direction": "minimize"}, {}) == [Objective("x", "minimize")]
