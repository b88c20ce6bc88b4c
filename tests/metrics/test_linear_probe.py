"""The linear probe against scikit-learn's own logistic regression."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits  # type: ignore[import-untyped]  # it has no stubs
from sklearn.linear_model import LogisticRegression  # type: ignore[import-untyped]  # it has no stubs
from sklearn.pipeline import make_pipeline  # type: ignore[import-untyped]  # it has no stubs
from sklearn.preprocessing import StandardScaler  # type: ignore[import-untyped]  # it has no stubs

from assay.metrics.linear_probe import LinearProbe


@pytest.fixture(scope="module")
def digits() -> tuple[Any, Any]:
    points, labels = load_digits(return_X_y=True)
    return torch.tensor(points).float(), torch.tensor(labels).long()


def test_is_a_logistic_regression_on_the_chosen_samples(digits: tuple[Any, Any]) -> None:
    points, labels = digits
    metric = LinearProbe(num_per_class=10)
    chosen = metric.chosen(labels[:1000])
    assert np.bincount(labels[chosen]).tolist() == [10] * 10
    assert torch.equal(chosen, LinearProbe(num_per_class=10).chosen(labels[:1000]))
    assert not torch.equal(chosen, LinearProbe(num_per_class=10, seed=1).chosen(labels[:1000]))
    metric.fit(points[chosen], labels[chosen])
    for start in range(1000, len(points), 100):
        metric.update(points[start : start + 100], labels[start : start + 100])
    probe = make_pipeline(StandardScaler(), LogisticRegression(max_iter=200))
    expected = probe.fit(points[chosen].numpy(), labels[chosen]).score(points[1000:].numpy(), labels[1000:])
    assert metric.compute().item() == pytest.approx(expected)
    assert 0.8 < expected < 0.95


def test_all_samples_up_to_a_limit(digits: tuple[Any, Any]) -> None:
    _, labels = digits
    assert len(LinearProbe(num_per_class=None).chosen(labels)) == len(labels)
    assert len(LinearProbe(num_per_class=None, max_samples=70).chosen(labels)) == 70


def test_says_nothing_of_features_it_was_not_fitted_for() -> None:
    metric = LinearProbe()
    metric.update(torch.zeros(3, 2), torch.tensor([0, 1, 1]))
    assert math.isnan(metric.compute())


def test_features_that_are_not_finite_are_never_right() -> None:
    metric = LinearProbe()
    metric.fit(torch.tensor([[0.0], [math.nan]]), torch.tensor([0, 1]))
    metric.update(torch.zeros(2, 1), torch.tensor([0, 1]))
    assert metric.compute().item() == 0


def test_without_labels() -> None:
    with pytest.raises(ValueError, match="use metrics=none"):
        LinearProbe().update(torch.zeros(3, 2), torch.zeros(3, 0).long())


@pytest.mark.parametrize("values", [{"num_per_class": 0}, {"max_samples": 0}, {"max_iter": 0}])
def test_numbers_below_one(values: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="at least 1"):
        LinearProbe(**values)
