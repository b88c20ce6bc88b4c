"""NT-Xent against its formula, written out in numpy."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from assay.errors import ConfigError
from assay.loss.nt_xent import NTXent


def slow(points: np.ndarray, samples: np.ndarray, temperature: float) -> float:
    """Equation 1 of Chen et al. 2020, one pair after the other."""
    unit = points / np.linalg.norm(points, axis=1, keepdims=True)
    losses = []
    for i in range(len(unit)):
        for j in range(len(unit)):
            if i != j and samples[i] == samples[j]:
                others = [np.exp(unit[i] @ unit[k] / temperature) for k in range(len(unit)) if k != i]
                losses.append(-np.log(np.exp(unit[i] @ unit[j] / temperature) / np.sum(others)))
    return float(np.mean(losses))


@pytest.mark.parametrize("temperature", [0.1, 0.5, 2.0])
@pytest.mark.parametrize("samples", [[0, 1, 2, 0, 1, 2], [5, 5, 1, 1, 1, 5]], ids=["two views", "three"])
def test_the_formula(temperature: float, samples: list[int]) -> None:
    points = torch.randn(6, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    expected = slow(points.numpy(), np.array(samples), temperature)
    assert NTXent(temperature)(points, torch.tensor(samples)).item() == pytest.approx(expected)


def test_views_that_lie_together_and_apart_from_others_cost_least() -> None:
    samples = torch.tensor([0, 1, 0, 1])
    together = torch.tensor([[1.0, 0.0], [-1.0, 0.0], [1.0, 0.1], [-1.0, 0.1]])
    loss = NTXent(0.1)
    assert loss(together, samples) < 0.01
    assert loss(together, torch.tensor([0, 0, 1, 1])) > 1


def test_a_single_sample_is_refused_in_training_and_nothing_in_evaluation() -> None:
    loss, points, samples = NTXent(), torch.randn(2, 3), torch.zeros(2, dtype=torch.long)
    with pytest.raises(ConfigError, match="no other to tell it from") as caught:
        loss(points, samples)
    assert caught.value.key == "data.batch_size"
    assert loss.eval()(points, samples).item() == pytest.approx(0, abs=1e-6)
    assert loss.eval()(points[:1], samples[:1]).item() == 0


@pytest.mark.parametrize("targets", [torch.zeros(4), torch.zeros(4, 0).long(), torch.zeros(3).long()])
def test_targets_that_name_no_samples(targets: torch.Tensor) -> None:
    with pytest.raises(ValueError, match=r"use augment=two_views"):
        NTXent()(torch.zeros(4, 2), targets)


@pytest.mark.parametrize("temperature", [0.0, -1.0, float("nan")])
def test_a_temperature_that_is_not_above_zero(temperature: float) -> None:
    with pytest.raises(ValueError, match="temperature must be above 0"):
        NTXent(temperature)
