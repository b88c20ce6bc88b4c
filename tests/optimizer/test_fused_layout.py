"""Fused optimizers step as others do, whatever a checkpoint has made of the memory they work on."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from assay.errors import ConfigError
from assay.optimizer.fused_layout import keep_layout

KINDS: dict[str, dict[str, Any]] = {
    "Adagrad": {"lr": 0.1},
    "Adam": {"lr": 0.1, "amsgrad": True},
    "AdamW": {"lr": 0.1},
    "SGD": {"lr": 0.1, "momentum": 0.9},
}
SHAPE = (4, 3, 2, 2)


def gradients(steps: int) -> list[Tensor]:
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(SHAPE, generator=generator) for _ in range(steps)]


def make(kind: str, weight: Tensor, *, fused: bool | None) -> tuple[nn.Parameter, torch.optim.Optimizer]:
    parameter = nn.Parameter(weight.detach().clone(memory_format=torch.preserve_format))
    optimizer = getattr(torch.optim, kind)([parameter], fused=fused, **KINDS[kind])
    keep_layout(optimizer)
    return parameter, optimizer


def step(parameter: nn.Parameter, optimizer: torch.optim.Optimizer, given: list[Tensor]) -> None:
    for gradient in given:
        parameter.grad = torch.empty_like(parameter).copy_(gradient)
        optimizer.step()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("before", [True, None])
def test_goes_on_from_the_state_of_another_kernel_and_memory_format(kind: str, before: bool | None) -> None:
    first, second = gradients(4)[:2], gradients(4)[2:]
    weight = torch.randn(SHAPE, generator=torch.Generator().manual_seed(1))
    expected, optimizer = make(kind, weight, fused=None)
    step(expected, optimizer, [*first, *second])

    one, optimizer = make(kind, weight, fused=before)
    step(one, optimizer, first)
    state = optimizer.state_dict()
    other, going_on = make(kind, one.detach().to(memory_format=torch.channels_last), fused=True)
    going_on.load_state_dict(state)
    going_on.param_groups[0]["fused"] = True
    step(other, going_on, second)
    torch.testing.assert_close(other, expected, rtol=1e-5, atol=1e-6)
    kept = [value for value in going_on.state[other].values() if value.shape == SHAPE]
    assert kept
    assert all(value.stride() == other.stride() for value in kept)


def test_gradients_that_lie_differently_are_refused() -> None:
    parameter, optimizer = make("AdamW", torch.zeros(SHAPE), fused=True)
    parameter.grad = torch.ones(SHAPE).to(memory_format=torch.channels_last)
    with pytest.raises(ConfigError, match="lie differently in memory") as raised:
        optimizer.step()
    assert raised.value.key == "optimizer.fused"
    assert not parameter.any()


def test_gradients_that_a_closure_makes_are_refused_before_the_second_step() -> None:
    parameter, optimizer = make("SGD", torch.zeros(SHAPE), fused=True)

    def closure() -> float:
        parameter.grad = torch.ones(SHAPE).to(memory_format=torch.channels_last)
        return 0.0

    optimizer.step(closure)
    with pytest.raises(ConfigError, match="lie differently"):
        optimizer.step(closure)


def test_sizes_of_one_lie_as_they_like() -> None:
    parameter, optimizer = make("AdamW", torch.zeros(4, 3, 1, 1), fused=True)
    parameter.grad = torch.ones(4, 3, 1, 1).to(memory_format=torch.channels_last)
    optimizer.step()
    optimizer.step()
    assert parameter.all()


def test_what_is_not_fused_is_left_alone() -> None:
    parameter, optimizer = make("AdamW", torch.zeros(SHAPE), fused=None)
    parameter.grad = torch.ones(SHAPE).to(memory_format=torch.channels_last)
    optimizer.step()
    optimizer.step()
    assert parameter.all()
