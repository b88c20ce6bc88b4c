"""What is refused, and in which words; what is taken is in `test_predictor.py`."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from assay.errors import DataError
from assay.run.predict.preprocess import Preprocess, as_frame, as_rows, of_type

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


FRAME = pd.DataFrame({"a": [1, 2], "b": ["x", "y"]})


@pytest.mark.parametrize(
    "raw",
    [
        [FRAME],
        [FRAME.iloc[:1], FRAME.iloc[1:]],
        [FRAME.iloc[0], FRAME.iloc[1]],
        [{"a": 1, "b": "x"}, {"a": 2, "b": "y"}],
        [{"a": [1, 2], "b": np.array(["x", "y"])}],
        [FRAME.iloc[:1], {"a": 2, "b": "y"}],
    ],
)
def test_rows_become_one_table(raw: list[Any]) -> None:
    found = as_frame(raw)
    assert found.astype(str).to_numpy().tolist() == [["1", "x"], ["2", "y"]]
    assert list(found.columns) == ["a", "b"]


@pytest.mark.parametrize("raw", [["x", "y"], pd.Series(["x", "y"]), np.array(["x", "y"]), ("x", "y")])
def test_texts_become_a_column(raw: Any) -> None:
    assert as_rows(raw, "text")["text"].tolist() == ["x", "y"]


def test_what_is_no_text_stays() -> None:
    row = FRAME.iloc[0]
    assert as_rows(row, "b") is row
    assert as_rows(FRAME, "b") is FRAME
    assert as_rows("a text", "b") == {"b": "a text"}


@pytest.mark.parametrize(
    ("given", "name", "expected"),
    [
        (torch.tensor([1, 2], dtype=torch.int64), "float32", torch.float32),
        (torch.tensor([1.0, 2.0], dtype=torch.float64), "float32", torch.float64),
        (torch.tensor([1, 2], dtype=torch.uint8), "float32", None),
        (torch.tensor([0.0, 1.0]), "uint8", torch.float32),
        (torch.tensor([0.0, 255.0]), "uint8", None),
        (torch.tensor([0, 255]), "uint8", torch.uint8),
        (torch.tensor([0, 256]), "uint8", None),
        (torch.tensor([-1]), "uint8", None),
        (torch.tensor([0, 1]), "bool", torch.bool),
        (torch.tensor([0, 2]), "bool", None),
        (torch.tensor([3.5]), "int64", None),
        (torch.tensor([3.5]), "", torch.float32),
        (torch.tensor([3.5]), "no type", torch.float32),
    ],
)
def test_a_type_changes_where_no_value_means_something_else(
    given: torch.Tensor, name: str, expected: torch.dtype | None
) -> None:
    if expected is None:
        with pytest.raises(DataError, match=f"the model was trained on torch.{name}"):
            of_type(given, name)
        return
    found = of_type(given, name)
    assert found.dtype == expected
    assert found.tolist() == given.tolist()
