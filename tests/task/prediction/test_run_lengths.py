from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.task.language_modelling import from_run_lengths, run_lengths


@given(st.lists(st.sampled_from([0, 1, 2, 10**6]), max_size=30))
def test_there_and_back(values: list[int]) -> None:
    assert from_run_lengths(run_lengths(values)) == values


def test_it_is_short() -> None:
    assert run_lengths([0, 0, *[1] * 256, 2]) == "0*2 1*256 2"


@pytest.mark.parametrize("text", ["x", "1*", "-1", "1*9999999 1*9999999", "1**2", "1.5"])
def test_what_a_stranger_wrote(text: str) -> None:
    with pytest.raises(ValueError, match="is not NUMBER"):
        from_run_lengths(text)
