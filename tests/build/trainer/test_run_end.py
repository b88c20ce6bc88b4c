"""Whether anything ends a run."""

from __future__ import annotations

from typing import Any

import pytest

from assay.build.trainer_options import has_no_end


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"max_epochs": 3}, False),
        ({"max_epochs": -1}, True),
        ({"max_epochs": -1, "max_steps": 10}, False),
        ({"max_epochs": None, "max_steps": -1}, False),  # Lightning's 1000 epochs
        ({"max_time": "00:00:01:00"}, True),
        ({"max_epochs": 3, "max_time": "00:00:01:00"}, False),
        ({"max_epochs": None, "max_steps": 10, "max_time": "00:00:01:00"}, False),
    ],
)
def test_no_number_of_epochs_and_steps(values: dict[str, Any], expected: bool) -> None:
    """Time alone is not a number of steps: a schedule has nothing to be computed from."""
    assert has_no_end(values) == expected
