"""A U-Net takes pictures of any size, and sees what is far away."""

from __future__ import annotations

import pytest
import torch

from assay.model.unet import UNet


@pytest.mark.parametrize("size", [(8, 8), (9, 15), (31, 4), (1, 8)])
def test_every_size(size: tuple[int, int]) -> None:
    model = UNet([2, *size], 3, [4, 8, 16])
    outputs = model(torch.randn(2, 2, *size))
    assert outputs.shape == (2, 3, *size)
    outputs.mean().backward()
    assert all(parameter.grad is not None for parameter in model.parameters())


def test_skips_join_features_of_the_same_place() -> None:
    """A pixel that changes is seen most where it is: maps are not shifted or flipped against each other."""
    torch.manual_seed(0)
    model = UNet([1, 32, 32], 2, [4, 8, 16]).eval()
    plain = torch.zeros(1, 1, 32, 32)
    changed = plain.clone()
    changed[0, 0, 21, 10] = 10
    with torch.no_grad():
        moved = (model(changed) - model(plain)).abs().sum(1)[0]
    row, column = divmod(int(moved.argmax()), 32)
    assert abs(row - 21) <= 2
    assert abs(column - 10) <= 2


@pytest.mark.parametrize(("widths", "message"), [([8], "two or more"), ([4] * 5, "halves pictures 4 times")])
def test_levels_that_cannot_be(widths: list[int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        UNet([3, 8, 8], 2, widths)
