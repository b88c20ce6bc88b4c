"""Samples that are looked at before training."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torchvision.transforms import v2  # type: ignore[import-untyped]  # torchvision ships no types

from assay.data.loaders import input_of, preview
from assay.data.samples import Samples, Stream
from assay.data.subset import Subset
from assay.data.transforms import Transforms
from assay.errors import DataError

SAMPLES = Samples(torch.arange(100.0).view(100, 1), torch.zeros(100, dtype=torch.int64))
ROWS = torch.arange(0, 100, 2)


class Sized:
    """Pictures of which the last one is larger than the others."""

    def __len__(self) -> int:
        return 100

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        return torch.zeros(1, 2 if index != 98 else 5, 2), 0


def subset(data: Any, *transforms: Any) -> Subset:
    return Subset(data, ROWS, ROWS, Transforms(transforms))


def test_samples_of_the_part_none_twice() -> None:
    blocks = list(preview(subset(SAMPLES), 40, seed=0))
    assert [len(block) for block in blocks] == [32, 8]
    values = torch.cat(blocks)[:, 0].long().tolist()
    assert len(set(values)) == 40
    assert set(values) <= set(ROWS.tolist())
    assert len(torch.cat(list(preview(subset(SAMPLES), 1000, seed=0)))) == len(ROWS)


def test_what_is_drawn_depends_on_the_seed_alone() -> None:
    noisy = subset(SAMPLES, v2.RandomApply([v2.GaussianNoise()], p=0.5))
    torch.manual_seed(7)
    (one,) = preview(noisy, 8, seed=3)
    (again,), (other,) = preview(noisy, 8, seed=3), preview(noisy, 8, seed=4)
    assert torch.equal(one, again)
    assert not torch.equal(one, other)


def test_a_sample_that_is_known_to_be_of_another_shape_is_looked_at() -> None:
    stream = Stream(Sized(), SAMPLES.targets, unlike=(0, 98))
    with pytest.raises(DataError, match="5"):
        list(preview(subset(stream), 1, seed=0))


def test_what_is_not_a_tensor() -> None:
    assert input_of({"image": torch.ones(2), "label": 1}).tolist() == [1, 1]
    with pytest.raises(DataError, match="of type str; a tensor was expected"):
        input_of(("text", 1))
    with pytest.raises(DataError, match="cannot be read"):
        input_of(DataError("it cannot be read"))
