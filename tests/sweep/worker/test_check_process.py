"""Jobs are proved in another process, and its errors are ours."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest
import torch
from tests.sweep.conftest import is_gone, until

from assay.check.checker import Checker
from assay.compose.job_composer import Job
from assay.errors import AssayError, ConfigError
from assay.sweep.worker.check_process import CheckProcess

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.sweep.conftest import MakeJobSpec

    from assay.sweep.worker.fork_client import ForkServer

MakeJob = Callable[..., Job]


@pytest.fixture
def process(fork_server: ForkServer) -> Iterator[CheckProcess]:
    made = CheckProcess(fork_server.connect)
    yield made
    made.close()


@pytest.fixture
def job(make_job_spec: MakeJobSpec, monkeypatch: pytest.MonkeyPatch) -> MakeJob:
    def make(*overrides: str) -> Job:
        spec = make_job_spec(*overrides)
        monkeypatch.chdir(spec.cwd)
        return Job(tuple(overrides), json.loads(spec.config), dict(spec.choices), fingerprint="", shared="")

    return make


def test_both_processes_say_the_same_of_a_job(process: CheckProcess, job: MakeJob) -> None:
    one = job()
    far, near = process.prove(one).report, Checker().check(one).report
    for name in ("name", "spec", "data_read", "scores", "directions", "devices", "warnings"):
        assert getattr(far, name) == getattr(near, name)
    assert {"train/loss", "val/loss", "val/accuracy", "test/accuracy"} <= set(far.scores)
    assert (far.data_read, far.devices, far.spec["num_classes"]) == (False, 1, 10)
    assert not Path(one.config["run_dir"]).exists()


def test_an_error_crosses_over_with_its_key_and_its_file(process: CheckProcess, job: MakeJob) -> None:
    one = job("optimizer.lr=fast")
    errors = []
    for checker in (Checker(prove=process.prove), Checker()):
        with pytest.raises(ConfigError) as caught:
            checker.check(one)
        errors.append(caught.value)
    far, near = errors
    assert str(far) == str(near)
    assert far.message.startswith("optimizer.lr: ")
    assert far.message.count("command line") == 1
    assert (far.key, far.file, far.exit_code) == (near.key, near.file, 2)
    assert process.prove(job()).report.devices == 1, "it goes on"


@pytest.mark.skipif(sys.platform != "linux", reason="counts the fork server's children")
def test_a_process_that_dies_is_an_error_and_replaced(
    process: CheckProcess, fork_server: ForkServer, job: MakeJob
) -> None:
    one = job()
    before = {child.pid for child in psutil.Process(fork_server.pid).children()}
    process.prove(one)
    for child in psutil.Process(fork_server.pid).children():
        if child.pid not in before:
            os.kill(child.pid, signal.SIGKILL)
    with pytest.raises(AssayError, match="the process that checked this job died"):
        process.prove(one)
    assert process.prove(one).report.devices == 1


def test_gpus_are_counted_elsewhere(process: CheckProcess) -> None:
    assert process.gpus() == torch.cuda.device_count()


def test_a_closed_process_ends(process: CheckProcess, fork_server: ForkServer) -> None:
    others = {child.pid for child in psutil.Process(fork_server.pid).children()}
    process.gpus()
    (started,) = {child.pid for child in psutil.Process(fork_server.pid).children()} - others
    process.close()
    until(lambda: is_gone(started), 20.0)
    process.close()
