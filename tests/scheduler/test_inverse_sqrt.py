from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.scheduler.inverse_sqrt import InverseSqrt


@given(st.integers(1, 10_000), st.integers(0, 100_000), st.sampled_from([1, 512]))
def test_is_the_paper_s_schedule_up_to_its_peak(warmup: int, step: int, d_model: int) -> None:
    """Vaswani et al. 2017, equation 3, with steps counted from 1."""

    def paper(number: int) -> float:
        return float(d_model**-0.5 * min(number**-0.5, number * warmup**-1.5))

    wanted = paper(step + 1) / paper(warmup)
    np.testing.assert_allclose(InverseSqrt(warmup)(step), wanted, rtol=1e-9)
    assert InverseSqrt(warmup)(warmup - 1) == 1.0


@pytest.mark.parametrize("warmup_steps", [0, -5])
def test_refuses_no_warmup(warmup_steps: int) -> None:
    with pytest.raises(ValueError, match="at least 1"):
        InverseSqrt(warmup_steps)
