"""Statistics of inputs and targets, and what is done with them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.preprocessing import StandardScaler  # type: ignore[import-untyped]  # scikit-learn ships no types
from torchvision.transforms import v2  # type: ignore[import-untyped]  # torchvision ships no types

from assay.data.loaders import input_statistics, target_statistics
from assay.data.normalize import IMAGENET_MEAN, IMAGENET_STD, Normalize, TargetScale, statistics
from assay.data.samples import Samples, Stream
from assay.data.splits import read_splits
from assay.data.subset import Split, Subset
from assay.data.transforms import Transforms


def test_bytes_as_torchvision_does_it() -> None:
    images = torch.randint(0, 256, (5, 3, 6, 7), dtype=torch.uint8)
    chain = v2.Compose(
        [v2.ToDtype(torch.float32, scale=True), v2.Normalize(list(IMAGENET_MEAN), list(IMAGENET_STD))]
    )
    ours = Normalize(IMAGENET_MEAN, IMAGENET_STD)(images, torch.float32)
    torch.testing.assert_close(ours, chain(images), atol=1e-5, rtol=1e-5)


def test_tables_as_numpy_does_it_with_a_constant_feature() -> None:
    table = np.random.default_rng(0).normal(3, 5, (50, 4))
    table[:, 2] = 7
    mean, std = table.mean(0), table.std(0)
    ours = Normalize(mean.tolist(), std.tolist())(torch.from_numpy(table), torch.float64)
    expected = (table - mean) / np.where(std == 0, 1, std)
    np.testing.assert_allclose(ours.numpy(), expected, atol=1e-9)


def test_without_statistics_bytes_become_shares_and_floats_stay() -> None:
    bytes_ = torch.tensor([[0, 51, 255]], dtype=torch.uint8)
    torch.testing.assert_close(Normalize()(bytes_, torch.float32), torch.tensor([[0.0, 0.2, 1.0]]))
    halves = torch.rand(2, 3, dtype=torch.float64)
    assert Normalize()(halves, torch.float32).dtype == torch.float32
    assert Normalize()(torch.tensor([[True, False]]), torch.float32).tolist() == [[1.0, 0.0]]


@settings(max_examples=40, deadline=None)
@given(
    sizes=st.lists(st.integers(1, 20), min_size=1, max_size=5),
    channels=st.integers(1, 20),
    as_bytes=st.booleans(),
    images=st.booleans(),
)
def test_statistics_as_numpy_has_them(sizes: list[int], channels: int, as_bytes: bool, images: bool) -> None:
    rng = np.random.default_rng(len(sizes))
    shape = (sum(sizes), channels, 3, 2) if images else (sum(sizes), channels)
    data = (
        rng.integers(0, 256, shape, dtype=np.uint8)
        if as_bytes
        else rng.normal(0, 2, shape).astype(np.float32)
    )
    mean, std = statistics(torch.split(torch.from_numpy(data), sizes))
    axes = (0, 2, 3) if images else (0,)
    exact = data.astype(np.float64) / (255 if as_bytes else 1)
    np.testing.assert_allclose(mean, exact.mean(axes), atol=1e-9)
    np.testing.assert_allclose(std, exact.std(axes), atol=1e-9)


def test_statistics_survive_a_large_offset() -> None:
    """The textbook formula E[x²] - E[x]² would give nonsense here."""
    values = 1e8 + torch.tensor([[0.0], [1.0], [2.0], [3.0]], dtype=torch.float64)
    mean, std = statistics(torch.split(values, 1))
    assert mean[0] == pytest.approx(1e8 + 1.5, abs=1e-6)
    assert std[0] == pytest.approx(np.sqrt(1.25), abs=1e-6)


TARGETS = np.random.default_rng(0).normal([3e5, -2e-6, 1e6], [1e5, 1e-6, 1.0], (500, 3))
SCALER = StandardScaler().fit(TARGETS)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_there_and_back_as_scikit_learn(dtype: torch.dtype) -> None:
    scale = TargetScale(SCALER.mean_.tolist(), SCALER.scale_.tolist())
    targets = torch.from_numpy(TARGETS).to(dtype)
    standard = scale.standardize(targets)
    assert standard.dtype == dtype
    exact = 1e-12 if dtype == torch.float64 else 0.07  # a million in 32 bits is known to 0.06
    np.testing.assert_allclose(standard.numpy(), SCALER.transform(TARGETS), atol=exact)
    back = scale.restore(standard)
    rounding = torch.finfo(dtype).eps * 4 * (np.abs(SCALER.mean_) + np.abs(TARGETS) + SCALER.scale_)
    assert (np.abs(back.numpy() - targets.numpy()) <= rounding).all()


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


def of(data: Samples | Stream, scale: Any = None) -> Any:
    first = data.inputs[:2] if isinstance(data, Samples) else INPUTS[:2]
    subset = Subset(data, ROWS, ROWS, Transforms())
    return input_statistics(subset, first, scale, seed=0, num_workers=0)


@pytest.mark.parametrize("known", [False, True])
def test_what_is_streamed_is_read_once(known: bool) -> None:
    dataset = Counting()
    scale = ((1.0,), (2.0,)) if known else None
    found = of(Stream(dataset, torch.zeros(50).long()), scale)
    assert dataset.reads == ([0] * 50 if known else [0] * 5 + [1] * 40 + [0] * 5)
    training = INPUTS[5:45].double().transpose(0, 1).flatten(1).numpy()
    expected = scale or (training.mean(1), training.std(1))
    np.testing.assert_allclose(found[0], expected[0], rtol=1e-6)
    np.testing.assert_allclose(found[1], expected[1], rtol=1e-6)


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
