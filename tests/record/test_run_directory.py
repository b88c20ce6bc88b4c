"""Run directories are made once, found fast, written by one process, and removed only where they are ours."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest
import torch
from tests.making_runs import make_run
from tests.run.test_ranks import wait_for

from assay.checkpoint.checkpoint_file import CheckpointFile
from assay.errors import AssayError
from assay.record.run_directory import create_run_directory, hash_files
from assay.record.run_lock import FILE, is_written, lock_run
from assay.record.run_record import RunRecord
from assay_analysis.read_runs import find_runs
from assay_lab.reproduce import find_changed_files
from assay_report.verbs import check_removable, remove_run

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def make_runs(root: Path, *names: str) -> None:
    for name in names:
        (root / name).mkdir(parents=True)
        (root / name / "record.json").write_text("{}")


def found(root: Path) -> list[str]:
    return [path.relative_to(root).as_posix() for path in find_runs(root)]


def test_a_run_is_never_written_over(tmp_path: Path) -> None:
    run = tmp_path / "outputs/a"
    create_run_directory(run)
    create_run_directory(run)  # nothing ran there yet
    RunRecord("a", "b", "running", "", 0, "", "").save(run)
    with pytest.raises(AssayError, match="already holds a run"):
        create_run_directory(run)
    with pytest.raises(AssayError, match=r"cannot be written: .+"):
        create_run_directory(run / "record.json/run")


def test_what_changes_after_the_run_is_named(tmp_path: Path) -> None:
    for name in ("config.yaml", "metrics.csv", "code.patch", "notes.txt"):
        (tmp_path / name).write_text(name)
    last = tmp_path / "checkpoints/last.ckpt"
    CheckpointFile().save_checkpoint({"x": torch.ones(2)}, last)
    (tmp_path / "checkpoints/also.ckpt").symlink_to("last.ckpt")
    files = hash_files(tmp_path)
    assert sorted(files) == ["checkpoints/last.ckpt", "code.patch", "config.yaml", "metrics.csv"]
    assert find_changed_files(tmp_path, files) == []
    (tmp_path / "metrics.csv").write_text("metrics,csv")
    (tmp_path / "code.patch").unlink()
    CheckpointFile().save_checkpoint({"x": torch.zeros(2)}, last)
    assert sorted(find_changed_files(tmp_path, files)) == [
        "checkpoints/last.ckpt",
        "code.patch",
        "metrics.csv",
    ]


def test_runs_are_found_by_name_and_neither_within_runs_nor_through_links(tmp_path: Path) -> None:
    make_runs(tmp_path / "runs", "b/2", "b/10", "a/sweeps/s/0", "a/sweeps/s/1", "c", "c/within")
    (tmp_path / "runs/half/checkpoints").mkdir(parents=True)
    (tmp_path / "runs/half/config.yaml").touch()
    (tmp_path / "runs/loop").symlink_to(tmp_path / "runs")
    assert found(tmp_path / "runs") == ["a/sweeps/s/0", "a/sweeps/s/1", "b/10", "b/2", "c"]
    assert found(tmp_path / "runs/c") == ["."]
    assert found(tmp_path / "runs/half") == []
    (tmp_path / "link").symlink_to(tmp_path / "runs/b")
    assert found(tmp_path / "link") == ["10", "2"], "what the user names is what is meant"
    with pytest.raises(AssayError, match="there is no folder"):
        found(tmp_path / "none")


@contextmanager
def holding(run_dir: Path, *, forks: bool = False) -> Iterator[int]:
    """A process that writes the run until it is killed; its own child, if any, lives on for a while."""
    reader, writer = os.pipe()
    child = os.fork()
    if not child:  # pragma: no cover - another process
        with lock_run(run_dir):
            if not forks or not os.fork():
                os.write(writer, b"x")
            time.sleep(60)
            os._exit(0)
    os.read(reader, 1)
    try:
        yield child
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def test_a_second_writer_is_refused_until_the_first_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("assay.record.run_lock._PATIENCE", 0.2)
    assert not is_written(tmp_path)
    with holding(tmp_path) as child:
        with lock_run(tmp_path, shared=True), pytest.raises(AssayError) as refused, lock_run(tmp_path):
            pass  # a rank of the same job may write
        assert f"by process {child}\n" in str(refused.value), "and not those that have joined it"
        assert f"kill {child}" in refused.value.hint
        for path in tmp_path.iterdir():
            path.unlink()  # none of its files is the lock
        assert is_written(tmp_path)
    assert not is_written(tmp_path)
    with lock_run(tmp_path):
        assert (tmp_path / FILE).read_text().split()[0] == str(os.getpid())


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The lock of a run that a process on another machine has written, whose locks do not reach here."""
    monkeypatch.setattr("assay.record.run_lock._BEAT", 0.1)
    (tmp_path / FILE).write_text("77 far-away\n")
    return tmp_path / FILE


def test_a_run_that_is_written_on_another_machine_is_not_taken_over(elsewhere: Path) -> None:
    ended = threading.Event()

    def beat() -> None:
        while not ended.wait(0.02):
            os.utime(elsewhere)

    thread = threading.Thread(target=beat)
    thread.start()
    told = "still being written by process 77 on far-away"
    with pytest.raises(AssayError, match=told), lock_run(elsewhere.parent):
        pass
    ended.set()
    thread.join()
    assert elsewhere.read_text() == "77 far-away\n"


def test_a_run_that_shows_no_sign_of_life_is_taken_over_once(elsewhere: Path) -> None:
    with lock_run(elsewhere.parent):
        assert elsewhere.read_text() == f"{os.getpid()} {socket.gethostname()}\n"
        before = elsewhere.stat().st_mtime_ns
        wait_for(lambda: elsewhere.stat().st_mtime_ns > before)
    assert elsewhere.read_text() == "", "whoever comes next, wherever, does not wait"


def test_whoever_was_taken_over_ends(elsewhere: Path, capfd: pytest.CaptureFixture[str]) -> None:
    process = os.fork()
    if process == 0:
        with lock_run(elsewhere.parent):
            time.sleep(60)
        os._exit(0)
    wait_for(lambda: elsewhere.read_text().startswith(f"{process} "))
    elsewhere.write_text("9 far-away\x1b]0;title\a\n")
    assert os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) == 1
    message = capfd.readouterr().err
    assert r"taken over by 9 far-away\x1b]0;title\x07" in message
    assert "\x1b" not in message


def test_what_loads_data_for_a_dead_process_keeps_no_lock(tmp_path: Path) -> None:
    with holding(tmp_path, forks=True):
        assert is_written(tmp_path)
    assert not is_written(tmp_path)


def test_a_lock_that_is_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / FILE).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(AssayError, match="is a link to"), lock_run(tmp_path / "run"):
        pass
    assert not (tmp_path / "elsewhere").exists()


def test_a_run_goes_and_what_its_links_lead_to_stays(tmp_path: Path) -> None:
    make_run(tmp_path / "run")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/thesis.txt").write_text("years of work")
    (tmp_path / "run/checkpoints").mkdir()
    (tmp_path / "run/checkpoints/link").symlink_to(tmp_path / "mine")
    remove_run(check_removable(tmp_path / "run"))
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]
    assert (tmp_path / "mine/thesis.txt").read_text() == "years of work"


def test_a_run_that_is_being_written_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("assay.record.run_lock._PATIENCE", 0.0)
    for status in ("running", "finished"):
        make_run(tmp_path / status, status=status)
        path = tmp_path / status
        with holding(path) as child, pytest.raises(AssayError, match=f"being written by process {child}"):
            check_removable(path)
        path = check_removable(path)
        with lock_run(path), pytest.raises(AssayError, match="still being written"):
            remove_run(path)  # it has begun in between
        assert (path / "record.json").is_file()
    make_run(tmp_path / "far", status="running", machine={"hostname": "elsewhere"})
    with pytest.raises(AssayError, match="may still be running on elsewhere"):
        check_removable(tmp_path / "far")


def test_what_is_not_a_run_directory(tmp_path: Path) -> None:
    make_run(tmp_path / "run")
    (tmp_path / "link").symlink_to(tmp_path / "run")
    for name, file in (("folder", "x"), ("foreign", "record.json"), ("sweep", "journal.jsonl")):
        (tmp_path / name).mkdir()
        (tmp_path / name / file).write_text('{"mine": true}')
    for name, message in (
        ("link", "is a link"),
        ("folder", "is not a run directory"),
        ("foreign", "has schema version None"),
        ("sweep", "is a sweep"),
        ("nowhere", "there is no run directory"),
    ):
        with pytest.raises(AssayError, match=message):
            check_removable(tmp_path / name)


@pytest.mark.parametrize("foreign", ["thesis.txt", "x/0", "0.ckpt"])
def test_what_no_run_has_written_stays(tmp_path: Path, foreign: str) -> None:
    make_run(tmp_path / "run")
    place = tmp_path / "run" / foreign
    place.parent.mkdir(exist_ok=True)
    place.write_text("years of work")
    with pytest.raises(AssayError, match=f"files that assay did not write: {foreign.partition('/')[0]}"):
        check_removable(tmp_path / "run")
    assert place.read_text() == "years of work"


def test_a_killed_removal_is_no_run_and_a_later_one_ends_it(tmp_path: Path) -> None:
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
    (tmp_path / "c").rename(tmp_path / ".c.0123456789ab.tmp")
    for path in tmp_path.glob(".a.*.tmp"):
        os.utime(path, (0, 0))
    remove_run(check_removable(tmp_path / "b"))
    left = [path.name for path in tmp_path.iterdir()]
    assert left == [".c.0123456789ab.tmp"], "one may still be being removed"
