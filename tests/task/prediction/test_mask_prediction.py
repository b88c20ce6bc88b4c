"""Predicted masks come in the size of their picture."""

from __future__ import annotations

import io

import numpy as np
import pytest
import torch
from PIL import Image

from assay.task.prediction.mask_prediction import MaskPredictions
from assay.task.task_of import task_of

NAMES = ("road", "c\x1b[31m")


def found(sizes: list[tuple[int, int]]) -> MaskPredictions:
    scores = np.random.default_rng(0).random((2, 2, 6, 8), dtype=np.float32)
    typed = task_of("segmentation").typed(scores, "probabilities", NAMES).resized(sizes)
    assert isinstance(typed, MaskPredictions)
    return typed


@pytest.mark.parametrize("size", [(6, 8), (13, 17), (3, 30), (1, 1)])
def test_the_nearest_pixel_as_torch_has_it(size: tuple[int, int]) -> None:
    one = found([size, (6, 8)])[0]
    small = torch.from_numpy(one.scores.argmax(0)).float()[None, None]
    wanted = torch.nn.functional.interpolate(small, size, mode="nearest-exact")[0, 0]
    np.testing.assert_array_equal(one.mask, wanted.numpy())
    assert sum(one.shares.values()) == pytest.approx(1)
    np.testing.assert_array_equal(np.asarray(Image.open(io.BytesIO(one.png()))), one.mask)


def test_a_table_of_masks() -> None:
    several = found([(12, 16), (6, 8)])
    assert [mask.shape for mask in several.masks] == [(12, 16), (6, 8)]
    frame = several.to_frame()
    assert list(frame) == ["prediction", "share road", "share c\x1b[31m"]
    assert frame["share road"].tolist() == pytest.approx([(mask == 0).mean() for mask in several.masks])
    assert several[1:][0].mask.shape == (6, 8)
    assert "\x1b" not in str(several[0])
    assert [one.mask.shape for one in several] == [(12, 16), (6, 8)], "iterated as indexed"
