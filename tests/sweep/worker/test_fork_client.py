"""The process that jobs are forked from; for how it ends with its driver see `test_preload.py`."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest

from assay.errors import AssayError

if TYPE_CHECKING:
    from tests.sweep.conftest import MakeJobSpec

    from assay.sweep.worker.fork_client import ForkServer


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


def test_ctrl_c_is_for_the_driver_alone(fork_server: ForkServer, make_job_spec: MakeJobSpec) -> None:
    assert os.getsid(fork_server.pid) == fork_server.pid
    os.kill(fork_server.pid, signal.SIGINT)
    key = fork_server.start(make_job_spec())
    assert fork_server.wait([key], 60.0)[key].exit_code == 0


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
