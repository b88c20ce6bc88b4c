"""Whether a regression starts anywhere near its targets."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from assay.check.smoke_batch import far_from_targets


@pytest.fixture
def model() -> nn.Linear:
    torch.manual_seed(0)
    return nn.Linear(3, 2)


def test_near_targets_and_a_head_that_starts_there_are_no_reason_to_warn(model: nn.Linear) -> None:
    assert not far_from_targets(model, (3,), [0.5, -3.0], [1.0, 4.0])
    assert "(number 1)" in far_from_targets(model, (3,), [0.5, 5e3], [1.0, 4.0])
    start = copy.deepcopy(model)
    start.bias.data[1] = 5e3
    assert not far_from_targets(start, (3,), [0.5, 5e3], [1.0, 4.0])


def test_a_wide_spread_is_as_far_as_a_distant_mean(model: nn.Linear) -> None:
    assert far_from_targets(model, (3,), [0.0, 0.0], [1.0, 500.0])


def test_the_model_and_the_random_numbers_stay_as_they_are() -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Dropout(0.5), nn.Linear(4, 1))
    before, random = copy.deepcopy(model.state_dict()), torch.get_rng_state()
    far_from_targets(model, (3,), [1e6], [1.0])
    assert torch.equal(torch.get_rng_state(), random)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert model.training


@pytest.mark.parametrize(("shape", "mean"), [((5,), [1e6, 1e6]), ((3,), [1e6]), ((3,), [])])
def test_what_cannot_be_known_is_not_told(model: nn.Linear, shape: tuple[int], mean: list[float]) -> None:
    assert far_from_targets(model, shape, mean, [1.0] * len(mean)) == ""
