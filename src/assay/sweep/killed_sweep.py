"""What became of a job whose sweep was killed: its run directory knows."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from assay.errors import AssayError
from assay.record.run_lock import is_written, refusal
from assay.record.run_record import FILE, RunRecord

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from assay.record.outcome import Outcome

_PATIENCE: Final = 30.0
"""Seconds that the processes of a killed sweep have to save and end."""


def recovered(run_dir: Path) -> Outcome | None:
    """How a job ended whose sweep died before it could be told.

    Returns:
        None where it has yet to be run, or goes on.
    """
    if not (run_dir / FILE).is_file():
        return None
    try:
        record = RunRecord.load(run_dir)
    except AssayError:
        return None  # damaged: the attempt to go on says so
    return record.outcome if record.status in ("finished", "pruned") else None


def wait_for(run_dirs: Iterable[Path]) -> None:
    """Wait until nobody writes any of these runs.

    Args:
        run_dirs: Of jobs that were running when their sweep was killed.

    Raises:
        AssayError: A process still does.
    """
    deadline = time.monotonic() + _PATIENCE
    for run_dir in run_dirs:
        while is_written(run_dir):
            if time.monotonic() > deadline:
                raise refusal(run_dir)
            time.sleep(0.1)
