"""Draws of a sample depend on its seed, and not on what was drawn before."""

from __future__ import annotations

import math
import random
from typing import Any

import numpy as np
import pytest
import torch

from assay.data.seeded_loader import SeededSamples, same

Keys = list[tuple[tuple[int, ...], Any]]


class Drawing:
    """Draws from all three generators, a sample at a time."""

    def __getitem__(self, index: int) -> tuple[float, ...]:
        return (index, random.random(), float(np.random.rand()), float(torch.rand(())))


class Together(Drawing):
    """Reads the samples of a batch together."""

    def __getitems__(self, indices: list[int]) -> list[tuple[float, ...]]:
        return [self[index] for index in indices]


def test_a_sample_is_the_same_in_any_order() -> None:
    samples = SeededSamples(Drawing())
    keys: Keys = [((1, 2, index), index) for index in range(6)]
    forwards = [samples[key] for key in keys]
    assert [samples[key] for key in reversed(keys)][::-1] == forwards
    assert samples.__getitems__(keys) == forwards
    assert len({one[1:] for one in forwards}) == 6


def test_samples_that_are_read_together_draw_from_the_first_seed() -> None:
    samples = SeededSamples(Together())
    keys: Keys = [((1, 2, index), index) for index in range(3)]
    assert samples.__getitems__(keys) == samples.__getitems__(keys)
    assert samples.__getitems__([]) == []


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        (math.nan, math.nan, True),
        (torch.tensor([math.nan]), torch.tensor([math.nan]), True),
        (torch.zeros(2), torch.zeros(2, 1), False),
        (np.zeros(2), torch.zeros(2), False),
        ([1, {"a": (2, "x")}], [1, {"a": (2, "x")}], True),
        ([1, {"a": (2, "x")}], [1, {"a": (2, "y")}], False),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}, False),
        ([1], [1, 2], False),
        (0, False, False),
        (object(), object(), True),  # what cannot be compared is not held against anybody
    ],
)
def test_same(one: Any, other: Any, expected: bool) -> None:
    assert same(one, other) is expected
