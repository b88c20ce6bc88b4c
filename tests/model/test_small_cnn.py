from __future__ import annotations

import pytest
import torch
from torch import nn

from assay.model.small_cnn import SmallCNN


def test_equals_the_layers_written_out() -> None:
    torch.manual_seed(0)
    model = SmallCNN([3, 9, 12], 5, widths=[4, 6])
    inputs = torch.randn(7, 3, 9, 12)
    convolutions = [module for module in model.modules() if isinstance(module, nn.Conv2d)]
    hidden = inputs
    for index, convolution in enumerate(convolutions):
        if index > 0:
            hidden = nn.functional.max_pool2d(hidden, 2)
        hidden = nn.functional.conv2d(hidden, convolution.weight, padding=1)
        mean = hidden.mean((0, 2, 3), keepdim=True)
        variance = hidden.var((0, 2, 3), keepdim=True, unbiased=False)
        hidden = ((hidden - mean) / (variance + 1e-5).sqrt()).clamp(min=0)
    expected = hidden.mean((2, 3)) @ model.head.weight.T + model.head.bias
    torch.testing.assert_close(model(inputs), expected, rtol=1e-4, atol=1e-5)
    assert [convolution.out_channels for convolution in convolutions] == [4, 6]


@pytest.mark.parametrize(("size", "blocks"), [(1, 1), (2, 2), (8, 4), (32, 6)])
def test_the_smallest_image_of_a_depth(size: int, blocks: int) -> None:
    widths = [2] * blocks
    assert SmallCNN([1, size, size], 3, widths=widths)(torch.randn(2, 1, size, size)).shape == (2, 3)
    with pytest.raises(ValueError, match=rf"{2 * size}x{2 * size} pixels or more"):
        SmallCNN([1, size, size], 3, widths=[*widths, 2])


@pytest.mark.parametrize("widths", [[], [8, 0]], ids=str)
def test_refuses_no_width(widths: list[int]) -> None:
    with pytest.raises(ValueError, match=r"model\.widths must hold at least one width"):
        SmallCNN([1, 8, 8], 3, widths=widths)
