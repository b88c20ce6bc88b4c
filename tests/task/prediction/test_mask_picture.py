"""Files of masks keep the classes; pictures show both masks."""

from __future__ import annotations

import io

import numpy as np
from PIL import Image

from assay.task.prediction.mask_prediction import mask_png, palette, side_by_side, swatch


def test_a_file_has_the_classes_and_their_colours() -> None:
    mask = np.array([[0, 1, 2], [254, 255, 3]], np.uint8)
    opened = Image.open(io.BytesIO(mask_png(mask)))
    assert opened.mode == "P"
    np.testing.assert_array_equal(np.asarray(opened), mask)
    np.testing.assert_array_equal(np.asarray(opened.convert("RGB")), palette()[mask])
    assert len(np.unique(palette()[:30], axis=0)) == 30
    assert Image.open(io.BytesIO(swatch(2))).getpixel((3, 3)) == tuple(palette()[2].tolist())


def test_a_picture_beside_both_masks() -> None:
    file = io.BytesIO()
    Image.new("RGB", (20, 10), (0, 0, 0)).save(file, "PNG")
    target, predicted = np.zeros((5, 10), int), np.full((5, 10), 7)
    shown = np.asarray(Image.open(io.BytesIO(side_by_side(file.getvalue(), target, predicted))))
    assert shown.shape == (80, 3 * 160 + 8, 3), "small pictures are made larger"
    middle, right = shown[40, 164 + 80], shown[40, -80]
    np.testing.assert_allclose(middle, 0.6 * palette()[0], atol=1)
    np.testing.assert_allclose(right, 0.6 * palette()[7], atol=1)
