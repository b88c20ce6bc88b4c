from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torchvision.transforms import v2  # type: ignore[import-untyped]  # torchvision ships no types

from assay.data.data_module import DataModule
from assay.data.samples import Samples
from assay.errors import DataError

Build = Callable[..., DataModule]


def shaped(*shape: int, dtype: torch.dtype = torch.float32) -> Samples:
    return Samples(torch.arange(20 * math.prod(shape)).view(20, *shape).to(dtype), torch.arange(20) % 2)


@pytest.mark.parametrize(
    ("test", "message"),
    [
        (shaped(1, 8, 9), r"a sample of the test subset is \[1, 8, 9\]"),
        (shaped(3, 8, 8), r"a sample of the test subset is \[3, 8, 8\]"),
        (shaped(1, 8, 8, dtype=torch.uint8), "of torch.uint8, one of training"),
        (shaped(1, 8, 8, dtype=torch.int32), "of torch.int32"),
    ],
)
def test_a_test_part_unlike_the_training_part_is_refused_before_training(
    data_module: Build, given_source: Any, test: Samples, message: str
) -> None:
    source = given_source({"train": shaped(1, 8, 8), "test": test}, "multiclass", ("a", "b"))
    with pytest.raises(DataError, match=message):
        data_module(source).setup()


@pytest.mark.parametrize(
    "chains",
    [
        {"train": [v2.Grayscale(3)]},
        {"eval": [v2.Grayscale(3)]},
        {"train": [v2.ToDtype(torch.uint8)]},
    ],
)
def test_transforms_of_one_chain_that_change_channels_or_type_are_refused(
    data_module: Build, given_source: Any, chains: dict[str, Any]
) -> None:
    source = given_source({"all": shaped(1, 8, 8)}, "multiclass", ("a", "b"))
    with pytest.raises(DataError, match=r"data\.transform: a sample is \["):
        data_module(source, transform=chains).setup()
