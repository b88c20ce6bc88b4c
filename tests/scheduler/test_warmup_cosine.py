from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.scheduler.warmup_cosine import WarmupCosine


@st.composite
def schedules(draw: st.DrawFn) -> tuple[int, int, float]:
    total = draw(st.integers(1, 10_000))
    return total, draw(st.integers(0, total - 1)), draw(st.floats(0, 1))


@given(schedules())
def test_follows_its_formula_everywhere(schedule: tuple[int, int, float]) -> None:
    total, warmup, minimum = schedule
    factor = WarmupCosine(total, warmup_steps=warmup, min_factor=minimum)
    steps = np.unique(np.linspace(0, total + 10, 50).astype(int))
    phase = np.clip((steps - warmup) / (total - warmup), 0, 1)
    cosine = minimum + (1 - minimum) * np.cos(np.pi * phase / 2) ** 2  # (1 + cos x) / 2 by the half angle
    wanted = np.where(steps < warmup, (steps + 1) / (warmup + 1), cosine)
    np.testing.assert_allclose([factor(int(step)) for step in steps], wanted, rtol=1e-9, atol=1e-12)


@given(schedules())
def test_rises_to_one_then_falls_to_the_minimum(schedule: tuple[int, int, float]) -> None:
    total, warmup, minimum = schedule
    factor = WarmupCosine(total, warmup_steps=warmup, min_factor=minimum)
    assert factor(0) > 0
    assert factor(warmup) == pytest.approx(1.0)
    assert factor(total) == pytest.approx(minimum)
    assert warmup == 0 or factor(warmup - 1) < 1
    later = [factor(step) for step in range(warmup, min(warmup + 50, total + 1))]
    assert all(b <= a + 1e-12 for a, b in itertools.pairwise(later))


@given(st.integers(1, 1000), st.floats(0, 1, exclude_max=True))
def test_a_fraction_always_leaves_room_for_the_cosine(total: int, fraction: float) -> None:
    factor = WarmupCosine(total, warmup_fraction=fraction)
    assert factor.warmup_steps == int(fraction * total)
    assert factor.warmup_steps < total


def test_steps_come_before_the_fraction() -> None:
    assert WarmupCosine(100, warmup_fraction=0.5, warmup_steps=0).warmup_steps == 0
    assert WarmupCosine(100, warmup_fraction=0.5).warmup_steps == 50


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"total_steps": 0}, "total_steps must be at least 1"),
        ({"total_steps": -1}, "total_steps must be at least 1"),
        ({"total_steps": 10, "warmup_steps": 10}, "below the 10 steps"),
        ({"total_steps": 10, "warmup_steps": -1}, "0 or more"),
        ({"total_steps": 10, "warmup_fraction": 1.0}, r"\[0, 1\)"),
        ({"total_steps": 10, "min_factor": 1.5}, r"\[0, 1\]"),
    ],
)
def test_refuses_what_means_nothing(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        WarmupCosine(**arguments)
