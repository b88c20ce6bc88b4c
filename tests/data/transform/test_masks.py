"""Masks move along with their pictures, as torchvision moves them; what comes in from outside is left out."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torchvision import tv_tensors  # type: ignore[import-untyped]  # torchvision ships no types
from torchvision.transforms import v2  # type: ignore[import-untyped]  # torchvision ships no types

from assay.data.transforms import Transforms, seed_generators
from assay.errors import DataError
from assay.task.segmentation import IGNORED

GENERATOR = torch.Generator().manual_seed(0)
PICTURES = torch.randint(0, 256, (3, 3, 12, 16), dtype=torch.uint8, generator=GENERATOR)
MASKS = torch.randint(0, 5, (3, 12, 16), dtype=torch.uint8, generator=GENERATOR)
FILLED = {tv_tensors.Image: 7, tv_tensors.Mask: IGNORED}
PAIRS: dict[str, tuple[Any, Any]] = {
    "flip": (v2.RandomHorizontalFlip(), v2.RandomHorizontalFlip()),
    "resized crop": (v2.RandomResizedCrop((8, 8)), v2.RandomResizedCrop((8, 8))),
    "padded crop": (v2.RandomCrop(12, padding=4, fill=7), v2.RandomCrop(12, padding=4, fill=FILLED)),
    "rotation": (v2.RandomRotation(90, fill=7), v2.RandomRotation(90, fill=FILLED)),
    "resize": (v2.Resize((5, 7)), v2.Resize((5, 7))),
}


@pytest.mark.parametrize("name", PAIRS)
def test_as_torchvision_has_it(name: str) -> None:
    ours, theirs = PAIRS[name]
    inputs, masks = Transforms([ours], masks=True).pairs(PICTURES, MASKS, 1, 2, torch.arange(3))
    for at in range(3):
        seed_generators((1, 2, at))
        picture, mask = theirs(tv_tensors.Image(PICTURES[at]), tv_tensors.Mask(MASKS[at]))
        assert torch.equal(inputs[at], picture.as_subclass(torch.Tensor))
        assert torch.equal(masks[at], mask.as_subclass(torch.Tensor))
        assert type(masks[at]) is torch.Tensor


def test_what_loses_the_mask_is_refused() -> None:
    with pytest.raises(DataError, match="a Mask of the same height and width was expected"):
        Transforms([v2.ToPureTensor(), v2.RandomHorizontalFlip()], masks=True).pair(
            PICTURES[0], MASKS[0], (0, 0, 0)
        )
