from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from assay.data.samples import Samples, Stream
from assay.data.splits import read_splits
from assay.data.subset import Split, Subset
from assay.data.training_statistics import input_statistics, target_statistics
from assay.data.transforms import Transforms

INPUTS = torch.randn(50, 3, 4, 4, generator=torch.Generator().manual_seed(0)) * 7 + 2
ROWS = torch.arange(5, 45)


class Counting:
    """A data set that knows how often each sample was read."""

    def __init__(self) -> None:
        self.reads = [0] * len(INPUTS)

    def __len__(self) -> int:
        return len(INPUTS)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        self.reads[index] += 1
        return INPUTS[index], 0


def of(data: Samples | Stream, scale: Any = None, *, ranged: bool = False) -> Any:
    subset = Subset(data, ROWS, ROWS, Transforms())
    first = data.inputs[:2] if isinstance(data, Samples) else INPUTS[:2]
    return input_statistics(subset, first, scale, ranged=ranged, seed=0, num_workers=0)


@pytest.mark.parametrize("known", [False, True])
def test_what_is_streamed_is_read_once(known: bool) -> None:
    dataset = Counting()
    scale = ((1.0,), (2.0,)) if known else None
    found = of(Stream(dataset, torch.zeros(50).long()), scale, ranged=True)
    assert dataset.reads == [0] * 5 + [1] * 40 + [0] * 5
    training = INPUTS[5:45].double().transpose(0, 1).flatten(1).numpy()
    assert found.value_range == (training.min(), training.max())
    expected = scale or (training.mean(1), training.std(1))
    np.testing.assert_allclose(found.mean, expected[0], rtol=1e-6)
    np.testing.assert_allclose(found.std, expected[1], rtol=1e-6)


def test_bytes_are_taken_from_0_to_1() -> None:
    inputs = (torch.arange(50 * 6) % 256).to(torch.uint8).view(50, 6)
    found = of(Samples(inputs, torch.zeros(50).long()), ranged=True)
    assert found.value_range == (0.0, 1.0)
    np.testing.assert_allclose(found.mean, inputs[5:45].double().numpy().mean(0) / 255)


def test_token_ids_have_no_statistics() -> None:
    found = of(Samples(torch.ones(50, 6, dtype=torch.int32), torch.zeros(50).long()))
    assert found == ((), (), ())


def test_nothing_is_read_of_what_is_known() -> None:
    dataset = Counting()
    assert of(Stream(dataset, torch.zeros(50).long()), ((), ())) == ((), (), ())
    assert not any(dataset.reads)


def test_real_targets_alone_are_standardised(given_source: Any) -> None:
    values = torch.randn(60, 2, generator=torch.Generator().manual_seed(1)) * 30 + 100
    values[:, 1] = torch.arange(60) % 2
    source = given_source({"all": Samples(torch.rand(60, 3), values)}, "regression", ("price", "size"))
    splits = read_splits(source, Split(0.1, 0.2), None)
    train = values[splits.rows["train"]].double().numpy()
    mean, std = target_statistics(splits)
    np.testing.assert_allclose(mean, train.mean(0), rtol=1e-6)
    np.testing.assert_allclose(std, train.std(0), rtol=1e-6)
    classes = given_source(
        {"all": Samples(torch.rand(60, 3), torch.arange(60) % 2)}, "multiclass", ("a", "b")
    )
    assert target_statistics(read_splits(classes, Split(0.1, 0.2), None)) == ((), ())
