"""GPUs that a job asks for."""

from __future__ import annotations

from typing import Any

import pytest

from assay.sweep.resources import num_gpus


@pytest.mark.parametrize(
    ("accelerator", "devices", "there", "expected"),
    [
        ("cpu", 4, True, 0),
        ("gpu", 2, False, 2),
        ("cuda", "1", False, 1),
        ("gpu", "auto", True, 1),
        ("gpu", -1, True, 1),
        ("gpu", [0, 3], True, 2),
        ("auto", "auto", True, 1),
        ("auto", "auto", False, 0),
    ],
)
def test_gpus(accelerator: str, devices: Any, there: bool, expected: int) -> None:
    assert num_gpus({"accelerator": accelerator, "devices": devices}, there=there) == expected
