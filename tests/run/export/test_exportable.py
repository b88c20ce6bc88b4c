"""Tensor operations that say what the run's own encoder and torchvision's Resize say."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pytest
import torch
from torchvision.transforms import v2  # type: ignore[import-untyped]  # torchvision ships no types

from assay.data.tabular.table_encoder import TableEncoder
from assay.run.export.export import open_onnx, write_onnx
from assay.run.export.exportable import Encode, table_inputs, traceable

if TYPE_CHECKING:
    from pathlib import Path


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


@pytest.mark.always
@pytest.mark.parametrize(
    ("columns", "most"),
    [(slice(None), None), (slice(None), 3), (["size", "garden"], None), (["town"], None)],
    ids=str,
)
def test_a_table_as_its_encoder_has_it(
    frame: pd.DataFrame, columns: Any, most: int | None, tmp_path: Path
) -> None:
    frame = frame[columns] if isinstance(columns, list) else frame
    encoder = TableEncoder(impute=True, max_categories=most)
    encoder.fit(frame, np.arange(150))
    new = frame.copy()
    if "town" in new:
        new.loc[[150, 160], "town"] = "Mars"
    if "floor" in new:
        new["floor"] = new["floor"].astype(float)  # a column of integers with a gap
    inputs = table_inputs(new, encoder.columns)
    example = {
        name: torch.zeros(values[:3].shape, dtype=torch.int64)
        if name == "categories"
        else torch.from_numpy(values[:3])
        for name, values in inputs.items()
    }
    batch = tuple({0: torch.export.Dim("batch")} for _ in example)
    program = torch.export.export(Encode(encoder.columns), tuple(example.values()), dynamic_shapes=(batch,))
    names = [name.replace("categories", "codes") for name in example]
    categories = [column for column in encoder.columns if column.kind == "category"]
    path = tmp_path / "encode.onnx"
    write_onnx(path, program, names=names, output="values", categories=categories, metadata={})
    np.testing.assert_allclose(open_onnx(path)(inputs), encoder.transform(new).numpy(), rtol=1e-6)


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
