"""Only run directories are removed, none that is running, and nothing that a link leads to."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from tests.making_runs import make_run

from assay.errors import AssayError
from assay.record.run_directory import find_runs, removable, remove_run
from assay.record.run_lock import writing

if TYPE_CHECKING:
    from pathlib import Path

HOLD = """
import sys
from pathlib import Path
from assay.record.run_lock import writing
with writing(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_a_run_goes_and_what_its_links_lead_to_stays(tmp_path: Path) -> None:
    make_run(tmp_path / "run")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/thesis.txt").write_text("years of work")
    (tmp_path / "run/checkpoints").mkdir(exist_ok=True)
    (tmp_path / "run/checkpoints/link").symlink_to(tmp_path / "mine")
    remove_run(removable(tmp_path / "run"))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["mine"]
    assert (tmp_path / "mine/thesis.txt").read_text() == "years of work"


@pytest.mark.parametrize("status", ["running", "finished"])
def test_one_that_another_process_writes_stays(tmp_path: Path, status: str) -> None:
    make_run(tmp_path / "run", status=status)
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path / "run")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(AssayError, match=f"still being written by process {holder.pid}"):
            removable(tmp_path / "run")
        assert holder.stdin is not None
        holder.stdin.close()
    remove_run(removable(tmp_path / "run"))
    assert not (tmp_path / "run").exists()


def test_one_that_begins_to_run_in_between_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_run(tmp_path / "run")
    monkeypatch.setattr("assay.record.run_lock._PATIENCE", 0.0)
    path = removable(tmp_path / "run")
    with writing(path), pytest.raises(AssayError, match="still being written"):
        remove_run(path)
    assert (tmp_path / "run/record.json").is_file()


def test_one_of_another_machine_stays(tmp_path: Path) -> None:
    make_run(tmp_path / "run", status="running", machine={"hostname": "elsewhere"})
    with pytest.raises(AssayError, match="may still be running on elsewhere"):
        removable(tmp_path / "run")


def test_what_is_not_a_run_directory(tmp_path: Path) -> None:
    make_run(tmp_path / "run")
    (tmp_path / "link").symlink_to(tmp_path / "run")
    (tmp_path / "folder").mkdir()
    (tmp_path / "foreign").mkdir()
    (tmp_path / "foreign/record.json").write_text('{"mine": true}')
    (tmp_path / "sweep").mkdir()
    (tmp_path / "sweep/journal.jsonl").touch()
    for name, message in (
        ("link", "is a link"),
        ("folder", "is not a run directory"),
        ("foreign", "is not a run directory"),
        ("sweep", "is a sweep"),
        ("nowhere", "there is no run directory"),
    ):
        with pytest.raises(AssayError, match=message):
            removable(tmp_path / name)


def test_a_broken_run_can_be_removed(tmp_path: Path) -> None:
    make_run(tmp_path / "run")
    (tmp_path / "run/record.json").write_text("{")
    remove_run(removable(tmp_path / "run"))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("foreign", ["thesis.txt", "src", "x/0", "0.ckpt"])
def test_what_no_run_has_written_stays(tmp_path: Path, foreign: str) -> None:
    make_run(tmp_path / "run")
    place = tmp_path / "run" / foreign
    place.parent.mkdir(exist_ok=True)
    place.write_text("years of work")
    with pytest.raises(
        AssayError, match=f"no run has written: {place.relative_to(tmp_path / 'run').parts[0]}"
    ):
        removable(tmp_path / "run")
    assert place.read_text() == "years of work"


def test_a_killed_removal_is_no_run_and_the_next_one_ends_it(tmp_path: Path) -> None:
    for name in ("a", "b", "c"):
        make_run(tmp_path / name)
    process = os.fork()
    if not process:
        shutil.rmtree = lambda *_: os.kill(os.getpid(), signal.SIGKILL)  # type: ignore[assignment]  # killed here
        remove_run(tmp_path / "a")
        os._exit(0)
    os.waitpid(process, 0)
    assert len(list(tmp_path.iterdir())) == 3
    assert [path.name for path in find_runs(tmp_path, broken=True)] == ["b", "c"]
    with writing(tmp_path / "c"):
        (tmp_path / "c").rename(tmp_path / ".c.0123456789ab.tmp")
        remove_run(removable(tmp_path / "b"))
        assert [path.name for path in tmp_path.iterdir()] == [".c.0123456789ab.tmp"], (
            "one is still being removed"
        )
