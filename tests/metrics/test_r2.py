from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import r2_score  # type: ignore[import-untyped]  # scikit-learn ships no types

from assay.metrics.r2 import R2


def draw(mean: float, spread: float, num_samples: int, num_targets: int, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return mean + spread * torch.randn(num_samples, num_targets, generator=generator)


def measured(predictions: torch.Tensor, targets: torch.Tensor, batch: int) -> float:
    metric = R2(targets.shape[1])
    for block, truth in zip(torch.split(predictions, batch), torch.split(targets, batch), strict=True):
        metric.update(block, truth)
    return metric.compute().item()


@settings(max_examples=40, deadline=None)
@given(
    num_samples=st.integers(2, 40),
    num_targets=st.integers(1, 3),
    batch=st.integers(1, 17),
    scale=st.sampled_from([(0.0, 1e-3), (0.0, 1e4), (-5.0, 1.0), (2000.0, 1.0)]),
    seed=st.integers(0, 1000),
)
def test_uneven_batches_give_scikit_learns_score(
    num_samples: int, num_targets: int, batch: int, scale: tuple[float, float], seed: int
) -> None:
    mean, spread = scale
    targets = draw(mean, spread, num_samples, num_targets, seed)
    predictions = targets + spread / 2 * torch.randn(
        targets.shape, generator=torch.Generator().manual_seed(seed)
    )
    expected = r2_score(targets.double().numpy(), predictions.double().numpy())
    assert measured(predictions, targets, batch) == pytest.approx(expected, rel=1e-4, abs=1e-5)


def test_tiny_numbers_are_not_taken_for_a_perfect_fit() -> None:
    targets, predictions = draw(0, 1e-3, 50, 1, seed=0), draw(0, 1e-3, 50, 1, seed=1)
    expected = r2_score(targets.double().numpy(), predictions.double().numpy())
    assert expected < 0
    assert measured(predictions, targets, 16) == pytest.approx(expected, rel=1e-5)


def test_a_mean_far_above_the_spread_costs_no_digits() -> None:
    targets = draw(2000, 1, 5000, 1, seed=0)
    predictions = targets + draw(0, 0.5, 5000, 1, seed=1)
    expected = r2_score(targets.double().numpy(), predictions.double().numpy())
    assert measured(predictions, targets, 64) == pytest.approx(expected, rel=1e-6)


def test_one_target_may_come_without_its_column() -> None:
    targets, predictions = draw(0, 1, 20, 1, seed=0), draw(0, 1, 20, 1, seed=1)
    metric = R2()
    metric.update(predictions.squeeze(1), targets.squeeze(1))
    assert metric.compute().item() == pytest.approx(measured(predictions, targets, 7))


@pytest.mark.parametrize("value", [3.0, 0.1, 1e6])
def test_a_target_that_never_varies(value: float) -> None:
    constant = torch.full((30, 1), value)
    assert measured(constant, constant, 7) == 1
    assert measured(constant + 1, constant, 7) == 0


def test_the_states_of_two_ranks_merge() -> None:
    targets, predictions = draw(3, 2, 31, 2, seed=0), draw(3, 2, 31, 2, seed=1)
    first, second = R2(2), R2(2)
    first.update(predictions[:9], targets[:9])
    second.update(predictions[9:20], targets[9:20])
    second.update(predictions[20:], targets[20:])
    first.merge_state(second)
    assert first.compute().item() == pytest.approx(r2_score(targets.numpy(), predictions.numpy()), rel=1e-5)


def test_one_sample_has_no_spread() -> None:
    assert math.isnan(measured(torch.ones(1, 1), torch.zeros(1, 1), 1))


def test_reset_forgets() -> None:
    metric = R2()
    metric.update(torch.zeros(4, 1), torch.arange(4.0).unsqueeze(1))
    assert metric.compute().item() == pytest.approx(r2_score(np.arange(4), np.zeros(4)))
    metric.reset()
    metric.update(torch.arange(4.0).unsqueeze(1), torch.arange(4.0).unsqueeze(1))
    assert metric.compute().item() == 1


@pytest.mark.parametrize(
    ("predictions", "targets"),
    [
        (torch.zeros(4, 1), torch.zeros(4)),
        (torch.zeros(4, 2), torch.zeros(4, 2)),
        (torch.zeros(4), torch.zeros(3)),
    ],
)
def test_shapes_that_do_not_fit(predictions: torch.Tensor, targets: torch.Tensor) -> None:
    with pytest.raises(ValueError, match=r"\[B, 1\]"):
        R2().update(predictions, targets)


def test_no_target_at_all() -> None:
    with pytest.raises(ValueError, match="num_targets"):
        R2(0)
