"""One process at a time writes a run, and a dead one keeps nobody out."""

from __future__ import annotations

import os
import signal
import time
from typing import TYPE_CHECKING

import pytest

from assay.errors import AssayError
from assay.record.run_lock import is_written, writing

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are forked")


def holding(run_dir: Path, *, forks: bool = False) -> int:
    """A process that writes the run until it is killed; its own child, if any, lives on for a while."""
    reader, writer = os.pipe()
    child = os.fork()
    if not child:  # pragma: no cover - another process
        with writing(run_dir):
            if forks and not os.fork():
                os.write(writer, b"x")
                time.sleep(20)
                os._exit(0)
            if not forks:
                os.write(writer, b"x")
            time.sleep(60)
        os._exit(0)
    os.read(reader, 1)
    return child


def kill(process: int) -> None:
    os.kill(process, signal.SIGKILL)
    os.waitpid(process, 0)


def test_a_second_writer_is_refused_until_the_first_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("assay.record.run_lock._PATIENCE", 0.2)
    assert not is_written(tmp_path)
    child = holding(tmp_path)
    try:
        assert is_written(tmp_path)
        with pytest.raises(AssayError, match="still being written"), writing(tmp_path):
            pass
        with writing(tmp_path, shared=True):  # a rank of the same job
            pass
    finally:
        kill(child)
    assert not is_written(tmp_path)
    with writing(tmp_path):
        pass


def test_what_loads_data_for_a_dead_process_keeps_no_lock(tmp_path: Path) -> None:
    kill(holding(tmp_path, forks=True))
    assert not is_written(tmp_path)
