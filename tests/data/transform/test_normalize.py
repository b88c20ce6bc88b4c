from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torchvision.transforms import v2  # type: ignore[import-untyped]  # torchvision ships no types

from assay.data.normalize import IMAGENET_MEAN, IMAGENET_STD, Normalize, statistics


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


def test_token_ids_are_left_alone() -> None:
    tokens = torch.randint(0, 9, (2, 5))
    assert Normalize([0.5] * 5, [1.0] * 5)(tokens, torch.float32) is tokens


def test_the_input_is_not_changed() -> None:
    images = torch.randint(0, 256, (2, 1, 3, 3), dtype=torch.uint8)
    floats, before = torch.rand(2, 3), images.clone()
    kept = floats.clone()
    Normalize([0.1], [0.2])(images, torch.float32)
    Normalize([0.1] * 3, [0.2] * 3)(floats, torch.float32)
    Normalize()(images, torch.float32)
    assert torch.equal(images, before)
    assert torch.equal(floats, kept)


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
