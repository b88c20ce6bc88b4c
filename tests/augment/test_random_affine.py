"""Affine maps of a batch, against torchvision's of one image."""

from __future__ import annotations

import math
from typing import Any, Final

import pytest
import torch
from torchvision.transforms.v2 import InterpolationMode  # type: ignore[import-untyped]  # it has no stubs
from torchvision.transforms.v2.functional import affine  # type: ignore[import-untyped]  # it has no stubs

from assay.augment.random_affine import RandomAffine

STILL: Final[dict[str, Any]] = {"degrees": 0.0, "translate": 0.0, "scale": (1.0, 1.0), "shear": 0.0}


@pytest.mark.parametrize(
    ("values", "torchvisions"),
    [
        ({"degrees": 30.0}, lambda d: {"angle": -30.0 * d[0]}),
        ({"scale": (0.5, 2.0)}, lambda d: {"scale": 0.5 + 1.5 * (d[2] + 1) / 2}),
    ],
    ids=["degrees", "scale"],
)
def test_each_image_as_torchvision_does_one(values: dict[str, object], torchvisions: object) -> None:
    images = torch.rand(3, 2, 8, 12, generator=torch.Generator().manual_seed(0))
    torch.manual_seed(1)
    found = RandomAffine(**{**STILL, **values})(images)
    torch.manual_seed(1)
    draws = 2 * torch.rand(5, 3) - 1
    for at in range(3):
        same = {"angle": 0.0, "translate": [0, 0], "scale": 1.0, "shear": [0.0, 0.0]}
        told = {**same, **torchvisions(draws[:, at].tolist())}  # type: ignore[operator]  # a function
        expected = affine(images[at], interpolation=InterpolationMode.BILINEAR, **told)
        torch.testing.assert_close(found[at], expected, atol=1e-4, rtol=1e-4)


def test_a_shift_by_one_pixel() -> None:
    image, moved = torch.arange(16.0).reshape(1, 1, 4, 4), RandomAffine(**{**STILL, "translate": 0.25})
    torch.manual_seed(0)
    draws = 2 * torch.rand(5, 1) - 1
    torch.manual_seed(0)
    found = moved(image)[0, 0]
    right = float(draws[3, 0])  # of a pixel, from the left if it is below 0
    x = 2 + right
    assert found[1, 2].isfinite()
    y = 1 + float(draws[4, 0])
    low_x, low_y = math.floor(x), math.floor(y)
    between = [
        (1 - abs(x - i)) * (1 - abs(y - j)) * float(image[0, 0, j, i])
        for i in (low_x, low_x + 1)
        for j in (low_y, low_y + 1)
        if 0 <= i < 4 and 0 <= j < 4
    ]
    assert found[1, 2].item() == pytest.approx(sum(between), abs=1e-4)


@pytest.mark.parametrize(
    "values", [{"degrees": -1.0}, {"shear": 90.0}, {"scale": [1.2, 0.8]}, {"scale": [0.0, 1.0]}]
)
def test_numbers_out_of_range(values: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="expected"):
        RandomAffine(**values)  # type: ignore[arg-type]  # wrong on purpose


def test_what_is_not_images() -> None:
    with pytest.raises(ValueError, match="images"):
        RandomAffine()(torch.zeros(3, 4))
