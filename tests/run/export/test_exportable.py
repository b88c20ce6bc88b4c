"""Tensor operations that say what the run's own encoder and torchvision's Resize say."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch
from torchvision.transforms import v2  # type: ignore[import-untyped]  # torchvision ships no types

from assay.data.tabular.table_encoder import Column, TableEncoder
from assay.run.export.exportable import (
    MISSING,
    UNKNOWN,
    Encode,
    codes_of,
    table_inputs,
    text_codes,
    traceable,
)


def encoded(frame: pd.DataFrame, encoder: TableEncoder) -> tuple[torch.Tensor, ...]:
    inputs = table_inputs(frame, encoder.columns)
    tensors = [torch.from_numpy(inputs["numbers"])] if "numbers" in inputs else []
    if "categories" in inputs:
        tensors.append(torch.from_numpy(codes_of(inputs["categories"], encoder.columns)))
    return tuple(tensors)


@pytest.fixture
def frame() -> pd.DataFrame:
    draw = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "town": draw.choice(["Nord", "Süd", "rare", "odd"], 200, p=[0.5, 0.4, 0.05, 0.05]),
            "size": draw.normal(100, 30, 200),
            "built": pd.Timestamp("1999-05-06") + pd.to_timedelta(draw.integers(0, 9000, 200), unit="D"),
            "garden": draw.random(200) > 0.5,
            "floor": draw.choice(["1", "2", "0"], 200),
        }
    )
    frame.loc[::17, "size"] = np.nan
    frame.loc[::19, "town"] = None
    return frame


@pytest.mark.parametrize("max_categories", [None, 3])
@pytest.mark.parametrize("columns", [slice(None), ["size", "garden"], ["town", "floor"]], ids=str)
def test_a_table_as_its_encoder_has_it(
    frame: pd.DataFrame, max_categories: int | None, columns: object
) -> None:
    frame = frame[columns] if isinstance(columns, list) else frame
    encoder = TableEncoder(impute=True, max_categories=max_categories)
    encoder.fit(frame, np.arange(150))
    new = frame.copy()
    if "town" in new:
        new.loc[[150, 160], "town"] = "Mars"
        new["floor"] = new["floor"].astype(float)  # a column of integers with a gap
    torch.testing.assert_close(Encode(encoder.columns)(*encoded(new, encoder)), encoder.transform(new))


def test_a_value_that_must_not_be_missing_makes_the_row_nan(frame: pd.DataFrame) -> None:
    whole = frame.dropna().reset_index(drop=True)
    encoder = TableEncoder()
    encoder.fit(whole, np.arange(100))
    encode, rows = Encode(encoder.columns), whole.head(4).copy()
    rows.loc[1, "size"] = np.inf
    rows.loc[2, "town"] = None
    marked = encode.mark_missing(torch.zeros(4, 2), *encoded(rows, encoder))
    assert marked.isnan().tolist() == [[False] * 2, [True] * 2, [True] * 2, [False] * 2]


@pytest.mark.parametrize("interpolation", [v2.InterpolationMode.BILINEAR, v2.InterpolationMode.BICUBIC])
@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32])
def test_resizing_without_a_branch(interpolation: v2.InterpolationMode, dtype: torch.dtype) -> None:
    resize = v2.Resize([20, 12], interpolation=interpolation)
    draw = torch.Generator().manual_seed(0)
    for size in ((20, 12), (64, 48), (7, 31)):
        pictures = torch.randint(256, (3, 3, *size), generator=draw).to(dtype)
        found, wanted = traceable(resize)(pictures), resize(pictures)
        assert found.dtype == wanted.dtype
        # torchvision has another kernel for bytes, which may round to the neighbouring level
        torch.testing.assert_close(
            found.float(), wanted.float(), atol=1.0 if dtype == torch.uint8 else 1e-3, rtol=0
        )


def test_codes() -> None:
    floor = Column("floor", "category", fill="2", codes={"-1": 0, "2": 1})
    town = Column("town", "category", codes={"a": 0, "b": 1, "c": 1}, other=1)
    texts = np.array([["2.0", "a"], ["", ""], ["7", "Mars"], ["-1", "c"]], dtype=object)
    assert codes_of(texts, [floor, Column("x", "number"), town]).tolist() == [
        [1, 0],
        [1, MISSING],
        [UNKNOWN, 1],
        [0, 1],
    ]
    assert text_codes(Column("e", "category", fill="x", codes={"": 0, "x": 1}))[""] == 0  # a text of its own


def test_rows() -> None:
    columns = [
        Column("town", "category", codes={"a": 0}),
        Column("day", "date", fill=0.0),
        Column("yes", "number"),
        Column("n", "number", fill=1.0),
    ]
    frame = pd.DataFrame(
        {
            "n": pd.array([3, None], dtype="Int64"),
            "yes": [True, False],
            "day": ["1970-01-03T12:00:00", None],
            "town": ["a", None],
            "else": 0,
        }
    )
    inputs = table_inputs(frame, columns)
    np.testing.assert_array_equal(
        inputs["numbers"], np.array([[2.5, 1, 3], [np.nan, 0, np.nan]], dtype=np.float32)
    )
    assert inputs["categories"].tolist() == [["a"], [""]]
    assert inputs["numbers"].dtype == np.float32
