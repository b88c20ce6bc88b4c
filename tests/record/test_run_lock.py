"""One process at a time writes a run, and a dead one keeps nobody out."""

from __future__ import annotations

import os
import signal
import time
from typing import TYPE_CHECKING

import pytest

from assay.errors import AssayError
from assay.record.run_lock import FILE, is_written, writing

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
        for path in tmp_path.iterdir():
            path.unlink()  # none of its files is the lock
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


def test_the_refusal_names_who_holds_the_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("assay.record.run_lock._PATIENCE", 0.2)
    child = holding(tmp_path)
    try:
        with writing(tmp_path, shared=True), pytest.raises(AssayError) as refused, writing(tmp_path):
            pass
        assert f"by process {child}\n" in str(refused.value), "and not those that have joined it"
        assert f"kill {child}" in refused.value.hint
    finally:
        kill(child)
    with writing(tmp_path):
        assert (tmp_path / FILE).read_text().split()[0] == str(os.getpid()), "one that is gone is not named"


@pytest.mark.skipif(os.name == "nt" or os.geteuid() == 0, reason="to the superuser nothing is read-only")
def test_where_nothing_can_be_written(tmp_path: Path) -> None:
    tmp_path.chmod(0o555)
    with pytest.raises(AssayError, match="cannot be written: Permission denied"), writing(tmp_path):
        pass


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / FILE).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(AssayError, match="is a link to"), writing(tmp_path / "run"):
        pass
    assert not (tmp_path / "elsewhere").exists()
