"""Student's t, against scipy."""

from __future__ import annotations

import math

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy import special  # type: ignore[import-untyped]  # scipy has no types

from assay.analysis.statistics import p_value, quantile


@settings(deadline=None)
@given(t=st.floats(-1e6, 1e6), freedom=st.floats(0.5, 1e5))
@example(t=0.0, freedom=1.0)
@example(t=1.7, freedom=1e5)  # where one continued fraction takes over from the other
def test_the_p_value_is_scipys(t: float, freedom: float) -> None:
    """In the far tail too, where nothing is left of 1 minus the distribution."""
    expected = 2 * special.stdtr(freedom, -abs(t))
    assert p_value(t, freedom) == pytest.approx(expected, rel=1e-8, abs=1e-300)


@pytest.mark.parametrize("t", [1e160, -1e300, math.inf])
def test_what_is_infinitely_far_out_has_no_probability(t: float) -> None:
    assert p_value(t, 3.0) == 0.0


@pytest.mark.parametrize("freedom", [1, 2, 3, 4, 9, 30, 199, 10_000])
@pytest.mark.parametrize("level", [0.5, 0.95, 0.999])
def test_the_quantile_is_scipys(level: float, freedom: int) -> None:
    assert quantile(level, freedom) == pytest.approx(special.stdtrit(freedom, (1 + level) / 2), rel=1e-11)
