"""The process that jobs are forked from: what it is, what ends with it, and what it ends with."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest
from tests.sweep.conftest import is_gone, until

from assay.errors import AssayError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.sweep.conftest import MakeJobSpec

    from assay.sweep.worker.fork_client import ForkServer

DRIVER = """
import sys
from assay.sweep.worker.fork_client import ForkServer
from assay.sweep.job_spec import JobSpec
fork_server = ForkServer.shared()
job = JobSpec.from_json(sys.stdin.readline())
key = fork_server.start(job)
print(fork_server.pid, flush=True)
sys.stdin.readline()
heavy = {"torch", "lightning", "numpy", "torchvision"} & set(sys.modules)
print(sorted(heavy), flush=True)
"""
ENDLESS = ("trainer.max_epochs=100000", "trainer.limit_val_batches=0")


# -- what it is -----------------------------------------------------------------------------------------


def test_a_key_is_told_once(fork_server: ForkServer, make_job_spec: MakeJobSpec) -> None:
    key = fork_server.start(make_job_spec())
    assert fork_server.wait([key], 60.0)[key].exit_code == 0
    assert fork_server.wait([key], 0.0) == {}


def test_waiting_for_nothing_takes_as_long_as_it_may(fork_server: ForkServer) -> None:
    start = time.monotonic()
    assert fork_server.wait([12345], 0.2) == {}
    assert time.monotonic() - start > 0.15


def test_stopping_what_has_ended_does_nothing(fork_server: ForkServer, make_job_spec: MakeJobSpec) -> None:
    key = fork_server.start(make_job_spec())
    fork_server.wait([key], 60.0)
    fork_server.stop(key, now=True)
    fork_server.stop(999_999, now=False)
    assert psutil.pid_exists(fork_server.pid)


def test_a_big_job_spec_reaches_its_job(fork_server: ForkServer, make_job_spec: MakeJobSpec) -> None:
    typed = ["x" * 1_000_000]  # well beyond what a socket holds
    job_spec = make_job_spec(overrides=typed)
    key = fork_server.start(job_spec)
    assert json.loads(fork_server.wait([key], 60.0)[key].outcome)["status"] == "finished"
    assert json.loads(Path(job_spec.run_dir, "record.json").read_text())["overrides"] == typed


# -- who ends with whom ---------------------------------------------------------------------------------


@pytest.fixture
def driver(make_job_spec: MakeJobSpec) -> Iterator[tuple[subprocess.Popen[str], int, Path]]:
    """A driver with a job that never ends: its process, that of its fork server, and the run directory."""
    job_spec = make_job_spec(*ENDLESS)
    with subprocess.Popen(
        [sys.executable, "-c", DRIVER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(job_spec.to_json() + "\n")
        process.stdin.flush()
        fork_server = int(process.stdout.readline())
        until(lambda: Path(job_spec.run_dir, "metrics.csv").is_file())
        yield process, fork_server, Path(job_spec.run_dir)
        process.kill()


def status_of(run_dir: Path) -> str:
    status: str = json.loads((run_dir / "record.json").read_text(encoding="utf-8"))["status"]
    return status


def test_a_driver_that_is_killed_leaves_nothing_and_its_jobs_save(
    driver: tuple[subprocess.Popen[str], int, Path],
) -> None:
    process, fork_server, run_dir = driver
    jobs = [child.pid for child in psutil.Process(fork_server).children()]
    process.kill()
    until(lambda: all(map(is_gone, [fork_server, *jobs])), 20.0)
    assert status_of(run_dir) == "interrupted"
    assert (run_dir / "checkpoints" / "last.ckpt").is_file()


def test_a_driver_that_ends_takes_its_fork_server_along_and_has_imported_no_torch(
    driver: tuple[subprocess.Popen[str], int, Path],
) -> None:
    process, fork_server, run_dir = driver
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write("\n")
    process.stdin.flush()
    assert process.stdout.readline() == "[]\n"
    assert process.wait(30.0) == 0
    assert is_gone(fork_server)
    assert status_of(run_dir) == "interrupted"


def test_ctrl_c_is_for_the_driver_alone(fork_server: ForkServer, make_job_spec: MakeJobSpec) -> None:
    assert os.getsid(fork_server.pid) == fork_server.pid
    os.kill(fork_server.pid, signal.SIGINT)
    key = fork_server.start(make_job_spec())
    assert fork_server.wait([key], 60.0)[key].exit_code == 0


# -- checks ---------------------------------------------------------------------------------------------


# -- a fork server that cannot start --------------------------------------------------------------------


def test_a_fork_server_that_cannot_start_is_one_error(
    make_job_spec: MakeJobSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from assay.sweep.worker.fork_client import ForkServer

    (tmp_path / "lightning.py").write_text("raise ImportError('libcudart.so is not there')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    fork_server = ForkServer()

    def begin_two() -> None:
        for _ in range(2):  # the first may be taken before the process has come to its imports
            key = fork_server.start(make_job_spec())
            assert fork_server.wait([key], 60.0)[key].exit_code == -9

    with pytest.raises(AssayError, match=r"cannot be started: ImportError: libcudart\.so is not there"):
        begin_two()
    monkeypatch.delenv("PYTHONPATH")
    fork_server.close()
