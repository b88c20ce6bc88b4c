"""Samples as pictures and rows that a person can look at."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image
from torchvision.transforms import v2  # type: ignore[import-untyped]  # torchvision ships no types

from assay.data.data_module import DataModule
from assay.data.samples import Samples, Stream
from assay.data.shown_samples import (
    RenderedSample,
    eval_samples,
    feature_names,
    sample_names,
    show,
    show_test_samples,
)
from assay.data.subset import Subset
from assay.data.transforms import Transforms


def shown(inputs: Any, positions: list[int], transforms: Any = (), **options: Any) -> list[RenderedSample]:
    targets = torch.zeros(len(inputs))
    samples = Samples(inputs, targets)
    data = Stream(samples, targets) if options.pop("streamed", False) else samples
    rows = torch.arange(len(inputs))
    return show(Subset(data, rows, rows, Transforms(transforms)), positions, 0, *options.values())


def pixels(one: RenderedSample) -> Any:
    assert one.picture is not None
    return np.asarray(Image.open(io.BytesIO(one.picture)))


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("channels", [1, 3, 4])
def test_a_picture_is_what_the_model_gets(channels: int, streamed: bool) -> None:
    inputs = torch.randint(0, 256, (5, channels, 6, 8), dtype=torch.uint8)
    found = shown(inputs, [3, 1], [v2.CenterCrop(4)], streamed=streamed, raw=None, columns=())
    wanted = v2.CenterCrop(4)(inputs)[[3, 1]].permute(0, 2, 3, 1).squeeze(3)
    for one, image in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(pixels(one), image)
        assert one.row is None


def test_floats_are_grey_over_their_range() -> None:
    unit = torch.tensor([0.0, 0.5, 1.0, 0.2]).view(1, 1, 2, 2)
    assert pixels(shown(unit, [0], raw=None, columns=())[0]).tolist() == [[0, 128], [255, 51]]
    wide = torch.tensor([[-4.0, 0.0, 4.0, 16.0], [0.0, 0.0, 0.0, 0.0]]).view(2, 1, 2, 2)
    both = shown(wide, [0, 1], raw=None, columns=())
    assert pixels(both[0]).tolist() == [[0, 51], [102, 255]]
    assert pixels(both[1]).tolist() == [[51, 51], [51, 51]]


def test_rows_have_the_names_of_their_columns() -> None:
    inputs = torch.tensor([[13.44, 1.0], [0.1, 2.0]])
    assert shown(inputs, [1], raw=None, columns=("a", "b"))[0].row == {"a": 0.1, "b": 2.0}
    assert shown(inputs, [0], raw=None, columns=())[0].row == {"0": 13.44, "1": 1.0}
    assert shown(torch.zeros(1, 1001), [0], raw=None, columns=())[0].row is None
    table = pd.DataFrame(
        {
            "text": ["x", None],
            "whole": pd.array([1, None], dtype="Int64"),
            "when": [pd.Timestamp("2024-02-29"), pd.NaT],
            "on": [True, False],
        }
    )
    found = shown(inputs, [0, 1], raw=table, columns=())
    assert [one.row for one in found] == [
        {"text": "x", "whole": 1, "when": "2024-02-29 00:00:00", "on": True},
        {"text": None, "whole": None, "when": None, "on": False},
    ]
    assert [one.picture for one in found] == [None, None]


SAMPLES = Samples(torch.rand(40, 1, 6, 6), torch.arange(40) % 4)


@pytest.fixture
def data(data_module: Callable[..., DataModule], given_source: Any) -> DataModule:
    source = given_source({"all": SAMPLES}, "multiclass", tuple("abcd"))
    transform = {"train": [v2.RandomCrop(4)], "eval": [v2.CenterCrop(4)], "normalize": "data"}
    built = data_module(source, transform=transform)
    built.setup()
    return built


@pytest.mark.parametrize("name", ["train", "test"])
def test_they_are_those_of_the_batches(data: DataModule, name: str) -> None:
    inputs, targets = eval_samples(data, name, [2, 0])
    rows = data.splits.rows[name][[2, 0]]
    cropped = SAMPLES.inputs[rows][:, :, 1:5, 1:5]
    mean, std = (torch.tensor(values).view(1, -1, 1, 1) for values in (data.spec.mean, data.spec.std))
    torch.testing.assert_close(inputs, (cropped - mean) / std)
    assert torch.equal(targets, SAMPLES.targets[rows])


Build = Callable[..., DataModule]


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
    assert show_test_samples(data, [1])[0].row == {"length": 2.0 * at, "width": 2.0 * at + 1}
