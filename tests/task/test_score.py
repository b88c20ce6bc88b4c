from __future__ import annotations

import numpy as np
from scipy import stats  # type: ignore[import-untyped]  # it has no stubs

from assay.task.evaluator import bootstrapped, num_draws


def test_the_interval_of_a_mean_is_scipys_bootstrap() -> None:
    values = np.random.default_rng(0).gamma(2, size=400)
    (score,) = bootstrapped(lambda weights: {"mean": float(weights @ values / weights.sum())}, len(values))
    theirs = stats.bootstrap((values,), np.mean, method="percentile", n_resamples=4000, rng=1)
    assert score.value == values.mean()
    spread = theirs.standard_error
    assert abs(score.low - theirs.confidence_interval.low) < 0.2 * spread
    assert abs(score.high - theirs.confidence_interval.high) < 0.2 * spread


def test_an_interval_that_does_not_hold_the_score_is_none() -> None:
    """Each draw leaves samples out, so the number of different ones is always smaller than of all."""
    (score,) = bootstrapped(lambda weights: {"different": float((weights > 0).sum())}, 50)
    assert score.value == 50
    assert np.isnan([score.low, score.high]).all()


def test_it_says_the_same_each_time_and_draws_less_often_of_many() -> None:
    def first(weights: np.ndarray) -> dict[str, float]:
        return {"first": float(weights[0])}

    assert bootstrapped(first, 30) == bootstrapped(first, 30)
    assert num_draws(10) == 1000
    assert num_draws(10**6) == 200
