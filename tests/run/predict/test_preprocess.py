"""What is refused, and in which words; what is taken is in `test_predictor.py`."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from assay.errors import DataError
from assay.run.predict.preprocess import Preprocess

BYTES = {"input_shape": [3, 4, 5], "input_dtype": "uint8", "mean": [0.5] * 3, "std": [0.25] * 3}


def test_the_same_numbers_in_every_type_that_keeps_them() -> None:
    preprocess = Preprocess(BYTES)
    pixels = np.random.default_rng(0).integers(0, 256, (2, 3, 4, 5), dtype=np.uint8)
    expected = torch.from_numpy(((pixels / 255 - 0.5) / 0.25).astype(np.float32))
    for same in (pixels, pixels.astype(np.int64), pixels.astype(">u2"), pixels / 255, torch.tensor(pixels)):
        torch.testing.assert_close(preprocess(same), expected)
    torch.testing.assert_close(preprocess(list(pixels)), expected)
    torch.testing.assert_close(preprocess(pixels[0]), expected[:1])
    assert preprocess.samples(pixels[0])[1]
    assert not preprocess.samples(pixels[:1])[1]


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (np.full((1, 3, 4, 5), 300), r"is torch.int64 from 300 to 300; the model was trained on torch.uint8"),
        (np.zeros((1, 4, 5, 3), np.uint8), "channels come first"),
        ([np.zeros((3, 4, 5), np.uint8), np.zeros((3, 4, 4), np.uint8)], "cannot make up one batch"),
        ([[1], [2, 3]], "cannot become an array"),
        (None, "NoneType of object"),
    ],
    ids=["range", "layout", "shapes", "ragged", "none"],
)
def test_what_cannot_be_meant(raw: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        Preprocess(BYTES)(raw)


def test_what_it_takes_is_said_when_it_is_printed() -> None:
    assert "input: uint8 [B, 3, 4, 5]" in repr(Preprocess(BYTES))
