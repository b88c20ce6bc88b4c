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

from assay.errors import AssayError, ConfigError
from assay.sweep.checker import Checker

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.sweep.conftest import MakeTask

    from assay.sweep.job_spec import Task
    from assay.sweep.worker.fork_server import Nursery

DRIVER = """
import sys
from assay.sweep.worker.fork_server import Nursery
from assay.sweep.job_spec import Task
nursery = Nursery.shared()
task = Task.from_json(sys.stdin.readline())
key = nursery.start(task)
print(nursery.pid, flush=True)
sys.stdin.readline()
heavy = {"torch", "lightning", "numpy", "torchvision"} & set(sys.modules)
print(sorted(heavy), flush=True)
"""
ENDLESS = ("trainer.max_epochs=100000", "trainer.limit_val_batches=0")


# -- what it is --------------------------------------------------------------------------------------------


def test_a_nursery_has_one_thread_and_no_gpu(nursery: Nursery, make_task: MakeTask) -> None:
    key = nursery.start(make_task())
    assert list(nursery.wait([key], 60.0)) == [key]
    process = psutil.Process(nursery.pid)
    assert process.num_threads() == 1
    assert not [path.path for path in process.open_files() if "nvidia" in path.path]


def spare_of(nursery: Nursery) -> int:
    """The process that waits to become a job, once there is one and nothing else."""
    process = psutil.Process(nursery.pid)
    until(lambda: len(process.children()) == 1)
    return process.children()[0].pid


def said_by(nursery: Nursery, task: Task) -> tuple[str, int]:
    """State of a job, and the process that it ran in."""
    key = nursery.start(task)
    state: str = json.loads(nursery.wait([key], 60.0)[key].said)["state"]
    line = Path(task.output).read_text(encoding="utf-8").partition("\n")[0]
    return state, int(line.partition("process ")[2].partition(":")[0])


def test_a_job_is_what_a_spare_process_has_waited_for(nursery: Nursery, make_task: MakeTask) -> None:
    waiting = spare_of(nursery)
    assert said_by(nursery, make_task()) == ("done", waiting)
    assert spare_of(nursery) != waiting


def test_a_spare_process_changes_no_number(nursery: Nursery, make_task: MakeTask) -> None:
    waiting = spare_of(nursery)
    first, second = make_task(), make_task()
    keys = [nursery.start(first), nursery.start(second)]  # one has a spare process, one has none
    while keys:
        ended = nursery.wait(keys, 60.0)  # tells each end once
        keys = [key for key in keys if key not in ended]
    records = [json.loads(Path(task.run_dir, "record.json").read_text()) for task in (first, second)]
    assert records[0]["weights_sha256"] == records[1]["weights_sha256"]
    assert records[0]["metrics"] == records[1]["metrics"]
    assert f"process {waiting}:" in Path(first.output).read_text()
    assert f"process {waiting}:" not in Path(second.output).read_text()


def test_a_spare_process_that_is_gone_is_missed_by_nobody(nursery: Nursery, make_task: MakeTask) -> None:
    waiting = spare_of(nursery)
    os.kill(waiting, signal.SIGKILL)
    state, process = said_by(nursery, make_task())
    assert state == "done"
    assert process != waiting


def test_a_key_is_told_once(nursery: Nursery, make_task: MakeTask) -> None:
    key = nursery.start(make_task())
    assert nursery.wait([key], 60.0)[key].exit_code == 0
    assert nursery.wait([key], 0.0) == {}


def test_waiting_for_nothing_takes_as_long_as_it_may(nursery: Nursery) -> None:
    start = time.monotonic()
    assert nursery.wait([12345], 0.2) == {}
    assert 0.15 < time.monotonic() - start < 2.0


def test_stopping_what_has_ended_does_nothing(nursery: Nursery, make_task: MakeTask) -> None:
    key = nursery.start(make_task())
    nursery.wait([key], 60.0)
    nursery.stop(key, now=True)
    nursery.stop(999_999, now=False)
    assert psutil.pid_exists(nursery.pid)


def test_a_big_task_reaches_its_job(nursery: Nursery, make_task: MakeTask) -> None:
    typed = ["x" * 1_000_000]  # well beyond what a socket holds
    task = make_task(overrides=typed)
    key = nursery.start(task)
    assert json.loads(nursery.wait([key], 60.0)[key].said)["state"] == "done"
    assert json.loads(Path(task.run_dir, "record.json").read_text())["overrides"] == typed


# -- who ends with whom ------------------------------------------------------------------------------------


@pytest.fixture
def driver(make_task: MakeTask) -> Iterator[tuple[subprocess.Popen[str], int, Path]]:
    """A driver with a job that never ends: its process, that of its nursery, and the run directory."""
    task = make_task(*ENDLESS)
    with subprocess.Popen(
        [sys.executable, "-c", DRIVER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(task.to_json() + "\n")
        process.stdin.flush()
        nursery = int(process.stdout.readline())
        until(lambda: Path(task.run_dir, "metrics.csv").is_file())
        yield process, nursery, Path(task.run_dir)
        process.kill()


def status_of(run_dir: Path) -> str:
    status: str = json.loads((run_dir / "record.json").read_text(encoding="utf-8"))["status"]
    return status


def test_a_driver_that_is_killed_leaves_nothing_and_its_jobs_save(
    driver: tuple[subprocess.Popen[str], int, Path],
) -> None:
    process, nursery, run_dir = driver
    jobs = [child.pid for child in psutil.Process(nursery).children()]
    process.kill()
    until(lambda: all(map(is_gone, [nursery, *jobs])), 20.0)
    assert status_of(run_dir) == "interrupted"
    assert (run_dir / "checkpoints" / "last.ckpt").is_file()


def test_a_driver_that_ends_takes_its_nursery_along_and_has_imported_no_torch(
    driver: tuple[subprocess.Popen[str], int, Path],
) -> None:
    process, nursery, run_dir = driver
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write("\n")
    process.stdin.flush()
    assert process.stdout.readline() == "[]\n"
    assert process.wait(30.0) == 0
    assert is_gone(nursery)
    assert status_of(run_dir) == "interrupted"


def test_ctrl_c_is_for_the_driver_alone(nursery: Nursery, make_task: MakeTask) -> None:
    assert os.getsid(nursery.pid) == nursery.pid
    os.kill(nursery.pid, signal.SIGINT)
    key = nursery.start(make_task())
    assert nursery.wait([key], 60.0)[key].exit_code == 0


# -- checks ------------------------------------------------------------------------------------------------


@pytest.fixture
def checker(nursery: Nursery) -> Iterator[Checker]:
    checker = Checker(nursery)
    yield checker
    checker.close()


def test_a_job_is_checked_in_another_process(
    checker: Checker, make_task: MakeTask, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = make_task()
    monkeypatch.chdir(task.cwd)
    found = checker.check(task.config, task.overrides)
    assert found.spec["num_classes"] == 10
    assert not found.data_read
    assert {"train/loss", "val/loss", "val/accuracy", "test/accuracy"} <= set(found.scores)
    start = time.monotonic()
    assert checker.check(task.config, task.overrides) == found
    assert time.monotonic() - start < 1.0
    assert not Path(task.run_dir).exists()


def test_what_is_wrong_with_a_job_is_told_as_if_it_was_checked_here(
    checker: Checker, make_task: MakeTask, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = make_task("optimizer.lr=fast")
    monkeypatch.chdir(task.cwd)
    with pytest.raises(ConfigError) as caught:
        checker.check(task.config, ["optimizer.lr=fast"])
    error = caught.value
    assert (error.key, error.exit_code) == ("optimizer.lr", 2)
    assert error.message.startswith("optimizer.lr: ")
    assert error.message.count("command line") == 1
    assert checker.check(make_task().config).spec  # and it goes on


def test_a_checker_that_dies_is_an_error_and_replaced(
    checker: Checker, make_task: MakeTask, nursery: Nursery, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = make_task()
    monkeypatch.chdir(task.cwd)
    checker.check(task.config)
    for process in psutil.Process(nursery.pid).children():
        process.kill()
    with pytest.raises(AssayError, match="the process that checked this job died"):
        checker.check(task.config)
    assert checker.check(task.config).spec


def test_gpus_are_counted_elsewhere(checker: Checker) -> None:
    import torch

    assert checker.gpus() == torch.cuda.device_count()


def test_a_closed_checker_ends(checker: Checker, nursery: Nursery) -> None:
    waiting = spare_of(nursery)
    checker.gpus()
    (started,) = {child.pid for child in psutil.Process(nursery.pid).children()} - {waiting}
    checker.close()
    until(lambda: is_gone(started), 20.0)


# -- a nursery that cannot start ---------------------------------------------------------------------------


def test_a_nursery_that_cannot_start_is_one_error(
    make_task: MakeTask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from assay.sweep.worker.fork_server import Nursery

    (tmp_path / "lightning.py").write_text("raise ImportError('libcudart.so is not there')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    nursery = Nursery()
    key = nursery.start(make_task())
    death = nursery.wait([key], 60.0)[key]
    assert death.exit_code == -9
    with pytest.raises(AssayError, match=r"cannot be started: ImportError: libcudart\.so is not there"):
        nursery.start(make_task())
    monkeypatch.delenv("PYTHONPATH")
    nursery.close()
