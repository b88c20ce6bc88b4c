"""What a program reads of a run that has ended."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from assay.run.result import RunResult

if TYPE_CHECKING:
    from assay.record.outcome import Status


@pytest.mark.parametrize(
    ("status", "signal", "code"),
    [
        ("finished", "", 0),
        ("pruned", "", 0),
        ("failed", "", 1),
        ("interrupted", "SIGINT", 130),
        ("interrupted", "SIGTERM", 143),
        ("interrupted", "SIGHUP", 129),
    ],
)
def test_exit_codes(status: Status, signal: str, code: int) -> None:
    assert RunResult(Path("run"), status, signal=signal).exit_code == code
