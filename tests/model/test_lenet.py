from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from assay.model.lenet import LeNet


def maps(model: LeNet, shape: tuple[int, int, int]) -> list[tuple[int, ...]]:
    outputs = torch.zeros(1, *shape)
    sizes = []
    for layer in model.features:
        outputs = layer(outputs)
        if not isinstance(layer, nn.Tanh):
            sizes.append(tuple(outputs.shape[1:]))
    return sizes


@pytest.mark.parametrize("shape", [(1, 32, 32), (1, 28, 28)], ids=str)
def test_has_the_paper_s_maps(shape: tuple[int, int, int]) -> None:
    """Figure 2: C1 6@28x28, S2 6@14x14, C3 16@10x10, S4 16@5x5, then 120, 84 and 10."""
    model = LeNet(shape, 10)
    assert maps(model, shape) == [(6, 28, 28), (6, 14, 14), (16, 10, 10), (16, 5, 5)]
    assert [layer.out_features for layer in model.classifier if isinstance(layer, nn.Linear)] == [120, 84, 10]


@settings(max_examples=40, deadline=None)
@given(
    channels=st.integers(1, 4),
    height=st.integers(8, 120),
    width=st.integers(8, 120),
    outputs=st.integers(1, 5),
)
def test_takes_any_image_from_8x8_up(channels: int, height: int, width: int, outputs: int) -> None:
    shape = (channels, height, width)
    model = LeNet(shape, outputs)
    assert model(torch.zeros(2, *shape)).shape == (2, outputs)
    assert max(maps(model, shape)[-1][1:]) <= 5


@pytest.mark.parametrize("shape", [(1, 7, 8), (1, 8, 7), (0, 8, 8), (8, 8), (13,)], ids=str)
def test_refuses_other_inputs(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=r"^model=lenet takes images .*; use model=mlp$"):
        LeNet(shape, 10)
