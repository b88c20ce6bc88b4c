"""What is asked of Slurm's programs, and which processes stand for jobs on this machine."""

from __future__ import annotations

import shlex
import subprocess
import sys
from typing import TYPE_CHECKING

import psutil
import pytest
from tests.sweep.conftest import until

from assay.sweep.launcher import slurm
from assay.sweep.launcher.slurm import SlurmQueue

if TYPE_CHECKING:
    from pathlib import Path

ANSWER = """7|RUNNING|assay-0
8|RUNNING|precious
9_3|PENDING|assay-1
10|COMPLETED|assay-2
slurm_load_jobs warning
"""


@pytest.fixture
def calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Programs by the names of Slurm's, which note how they were called."""
    log = tmp_path / "calls"
    for name in ("squeue", "scancel"):
        program = tmp_path / name
        answer = ANSWER if name == "squeue" else ""
        program.write_text(f"#!/bin/sh\necho {name} \"$@\" >> '{log}'\nprintf '%s' '{answer}'\n")
        program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    return log


def test_jobs_of_others_are_not_known(calls: Path) -> None:
    queue = SlurmQueue(is_local=False)
    assert queue.states(["7"]) == {"7": "RUNNING", "9_3": "PENDING", "10": "COMPLETED"}
    assert [queue.has(job_id) for job_id in ("7", "8", "9_3", "10", "11")] == [
        True,
        False,
        True,
        False,
        False,
    ]
    assert calls.read_text().startswith("squeue --me --noheader --states=all")


def test_what_slurm_is_told(calls: Path) -> None:
    queue = SlurmQueue(is_local=False)
    queue.send("7", "USR2")
    queue.cancel("9_3")
    assert calls.read_text().splitlines() == ["scancel --signal=USR2 7", "scancel 9_3"]


@pytest.mark.usefixtures("calls")
def test_a_scheduler_that_does_not_answer_has_lost_nothing(tmp_path: Path) -> None:
    (tmp_path / "squeue").write_text("#!/bin/sh\necho 'Unable to contact slurm controller' >&2\nexit 1\n")
    queue = SlurmQueue(is_local=False)
    assert queue.states(["7"]) is None
    assert queue.has("7")


def test_a_job_after_lines_for_the_shell_is_not_gone(tmp_path: Path) -> None:
    """Submitit starts it through a shell then: its number is that of the shell."""
    script = tmp_path / "stands for submitit.py"
    script.write_text("print('here', flush=True)\nimport time\ntime.sleep(600)\n", encoding="utf-8")
    line = shlex.join([sys.executable, str(script), "submitit.local._local"])
    shell = subprocess.Popen(f"true && {line}; true", shell=True, stdout=subprocess.PIPE, text=True)  # noqa: S602
    assert shell.stdout is not None
    assert shell.stdout.readline() == "here\n"
    controller = slurm._controller(str(shell.pid))
    assert controller is not None
    assert controller.ppid() == shell.pid
    controller.kill()
    shell.communicate()
    assert slurm._controller(str(shell.pid)) is None


def test_a_task_that_has_just_ended_does_not_end_its_controller() -> None:
    """Between a task's end and the controller's next look the task is a zombie, which has no command line."""
    code = "import subprocess, time; task = subprocess.Popen(['true']); time.sleep(60)"
    with subprocess.Popen([sys.executable, "-c", code, "submitit.local._local"]) as controller:
        try:
            until(lambda: any(child.status() == psutil.STATUS_ZOMBIE for child in children(controller.pid)))
            found = slurm._controller(str(controller.pid))
            assert found is not None
            assert found.pid == controller.pid
        finally:
            controller.kill()


def children(pid: int) -> list[psutil.Process]:
    return psutil.Process(pid).children()
