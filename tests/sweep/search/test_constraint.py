"""Bounds on metrics."""

from __future__ import annotations

import math

import pytest

from assay.errors import ConfigError
from assay.sweep.search.study import read_constraints


@pytest.mark.parametrize(
    ("text", "value", "excess"),
    [
        ("val/latency <= 3", 5.0, 2.0),
        ("val/latency<=3", 3.0, 0.0),
        ("val/accuracy >= 0.9", 0.8, 0.1),
        ("  val/accuracy >= 9e-1 ", 0.95, -0.05),
    ],
)
def test_how_far_a_job_is_beyond(text: str, value: float, excess: float) -> None:
    (constraint,) = read_constraints([text])
    assert constraint.excess({constraint.name: value}) == pytest.approx(excess)


@pytest.mark.parametrize("metrics", [{}, {"val/latency": math.nan}])
def test_what_nobody_knows_keeps_no_bound(metrics: dict[str, float]) -> None:
    assert read_constraints(["val/latency <= 3"])[0].excess(metrics) == math.inf


@pytest.mark.parametrize(
    "text", ["val/latency", "val/latency < 3", "<= 3", "val/latency <= much", "a <= inf", "a <= nan"]
)
def test_what_is_not_a_bound(text: str) -> None:
    with pytest.raises(ConfigError, match="is not a bound on a metric") as error:
        read_constraints(["a <= 1", text])
    assert error.value.key == "hydra.sweeper.constraints"
