from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from PIL import Image

from assay.data.data_module import DataModule
from assay.data.digits import Digits
from assay.data.samples import Samples
from assay.data.shown_samples import feature_names, sample_names, show_tested

Build = Callable[..., DataModule]


def test_pictures_are_those_of_the_test_subset(data_module: Build) -> None:
    data = data_module(Digits())
    data.setup()
    rows = data.splits.rows["test"]
    assert sample_names(data) == list(map(str, rows))
    (shown,) = show_tested(data, [3])
    assert shown.picture is not None
    pixels = np.asarray(Image.open(io.BytesIO(shown.picture)))
    inputs = Digits().read()["all"].inputs[int(rows[3])]
    np.testing.assert_array_equal(pixels, np.round(inputs[0].numpy() / 16 * 255))
    assert not list(feature_names(data))


def test_rows_are_called_by_their_columns(data_module: Build, given_source: Any) -> None:
    samples = Samples(
        torch.arange(40.0).view(20, 2),
        torch.arange(20) % 2,
        names=[f"row {at}" for at in range(20)],
        columns=("length", "width"),
    )
    data = data_module(given_source({"all": samples}, "multiclass", ("a", "b")))
    data.setup()
    at = int(data.splits.rows["test"][1])
    assert sample_names(data)[1] == f"row {at}"
    assert feature_names(data) == ("length", "width")
    assert show_tested(data, [1])[0].row == {"length": 2.0 * at, "width": 2.0 * at + 1}
