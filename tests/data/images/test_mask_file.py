"""Masks in every form they are saved in."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

import numpy as np
import pytest
from PIL import Image

from assay.data.segmentation_folder import decode_mask, read_mask
from assay.errors import DataError

if TYPE_CHECKING:
    from pathlib import Path

VALUES = np.array([[0, 1, 2, 255], [3, 3, 0, 9]], np.uint8)


def as_file(image: Image.Image, kind: str = "PNG") -> bytes:
    file = io.BytesIO()
    image.save(file, kind)
    return file.getvalue()


def with_palette() -> Image.Image:
    image = Image.fromarray(VALUES, "L")
    image.putpalette(np.random.default_rng(0).integers(0, 256, 768, np.uint8).tobytes())
    return image


GREY = Image.fromarray(VALUES, "L")
FORMS = {
    "grey": GREY,
    "palette": with_palette(),
    "grey with alpha": Image.merge("LA", [GREY, Image.new("L", GREY.size, 7)]),
    "equal channels": Image.merge("RGB", [GREY] * 3),
    "equal channels and alpha": Image.merge("RGBA", [GREY] * 4),
    "16 bits": Image.fromarray(VALUES.astype(np.uint16)),
}


@pytest.mark.parametrize("form", FORMS)
def test_values_are_kept(form: str) -> None:
    np.testing.assert_array_equal(decode_mask(as_file(FORMS[form])).numpy(), VALUES)


def test_black_and_white() -> None:
    content = as_file(Image.fromarray(VALUES > 1))
    np.testing.assert_array_equal(decode_mask(content).numpy(), VALUES > 1)


def test_scaling_makes_no_new_values() -> None:
    scaled = decode_mask(as_file(GREY), (7, 9)).numpy()
    assert scaled.shape == (7, 9)
    assert set(np.unique(scaled)) <= set(np.unique(VALUES))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (as_file(Image.merge("RGB", [GREY, GREY.rotate(180), GREY])), "it has colours"),
        (as_file(Image.fromarray(VALUES.astype(np.uint16) * 200)), "values up to 51000"),
        (as_file(GREY, "JPEG"), "JPEG, which changes the values"),
        (b"\x89PNG\r\n\x1a\nrest", "not a PNG file"),
    ],
)
def test_what_is_not_a_mask_is_refused(content: bytes, message: str, tmp_path: Path) -> None:
    path = tmp_path / "a.png"
    path.write_bytes(content)
    with pytest.raises(DataError, match=message) as caught:
        read_mask(str(path))
    assert str(path) in caught.value.message
