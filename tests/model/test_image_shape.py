from __future__ import annotations

import pytest

from assay.model.checks import image_shape


def test_channels_height_and_width() -> None:
    assert image_shape([3, 8, 12], "model=lenet", minimum=8) == (3, 8, 12)


@pytest.mark.parametrize("shape", [[13], [8, 8], [1, 3, 8, 8], [0, 8, 8], []])
def test_what_is_not_an_image(shape: list[int]) -> None:
    with pytest.raises(ValueError, match=r"model=lenet takes images \[C,H,W\].* use model=mlp"):
        image_shape(shape, "model=lenet")


@pytest.mark.parametrize("shape", [[3, 7, 20], [3, 20, 7]])
def test_an_image_that_is_too_small(shape: list[int]) -> None:
    with pytest.raises(ValueError, match="images of 8x8 pixels or more"):
        image_shape(shape, "model=lenet", minimum=8)
