"""What a sweep that goes on finds of jobs that ended, or still run, without it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest

from assay.errors import AssayError
from assay.record.run_lock import writing
from assay.record.run_record import RunRecord, now
from assay.sweep import session
from assay.sweep.session import recovered, wait_for

if TYPE_CHECKING:
    from pathlib import Path


def record(**fields: Any) -> RunRecord:
    plain: dict[str, Any] = {"run_id": "0", "name": "x", "started": now(), "seed": 0}
    plain |= {"fingerprint": "0", "config_fingerprint": "0"}
    return RunRecord(**(plain | fields))


@pytest.mark.parametrize(
    ("status", "known"),
    [("finished", True), ("pruned", True), ("running", False), ("interrupted", False), ("failed", False)],
)
def test_only_a_run_that_came_to_its_end_is_not_run_again(status: str, known: bool, tmp_path: Path) -> None:
    record(status=status, metrics={"val/loss": 0.5}).save(tmp_path)
    outcome = recovered(tmp_path)
    assert (outcome is not None) == known
    if outcome is not None:
        assert (outcome.status, outcome.metrics) == (status, {"val/loss": 0.5})


def test_a_run_that_is_still_written_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    release, hold = os.pipe()
    ready, tell = os.pipe()
    child = os.fork()
    if not child:
        os.close(hold)
        with writing(tmp_path):
            os.write(tell, b".")
            os.read(release, 1)
        os._exit(0)
    os.read(ready, 1)
    monkeypatch.setattr(session, "_PATIENCE", 0.2)
    with pytest.raises(AssayError, match=f"still being written by process {child}"):
        wait_for([tmp_path])
    monkeypatch.setattr(session, "_PATIENCE", 60.0)
    os.close(hold)
    wait_for([tmp_path])
    assert os.waitpid(child, 0)[1] == 0
