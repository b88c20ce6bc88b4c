"""Where training is, as a checkpoint says it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.errors import AssayError
from assay.loop.carried_state import HALF_DONE, Phase, Position

COUNTS = st.integers(0, 2**40)


@given(COUNTS, COUNTS, st.sampled_from(sorted(set(Phase) - {*HALF_DONE})))
def test_what_was_written_is_read(epoch: int, batch: int, phase: Phase) -> None:
    position = Position(epoch, batch, phase)
    assert Position.of_state(position.as_state()) == position
    assert all(type(value) in (int, str) for value in position.as_state().values())


@pytest.mark.parametrize(
    "changed",
    [
        *({"epoch": -1}, {"epoch": True}, {"epoch": 1.0}, {"epoch": None}, {"batch": "3"}, {"batch": -1}),
        *({"phase": "step"}, {"phase": "validation"}, {"phase": "nowhere"}, {"phase": None}, {"phase": []}),
    ],
    ids=str,
)
def test_anything_else_is_refused_in_one_line(changed: dict[str, Any]) -> None:
    state = {**Position(1, 2, Phase.BATCH_END).as_state(), **changed}
    with pytest.raises(AssayError, match=r"^the checkpoint says epoch .*") as error:
        Position.of_state(state)
    assert "\n" not in str(error.value)
