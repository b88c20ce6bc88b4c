"""Jobs side by side in processes of their own, in this process, and in a custom launcher."""

from __future__ import annotations

import importlib.util
import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest.mock import Mock

import psutil
import pytest
from tests.sweep.conftest import PATIENCE, environment, is_gone, run, until
from tests.sweep.launcher.shared import ENDLESS, next_end

from assay.errors import AssayError
from assay.record.run_record import RunRecord
from assay_sweep.launcher.local import LocalLauncher
from assay_sweep.launcher.serial import SerialLauncher
from assay_sweep.testing import ENDINGS, check_launcher

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.sweep.conftest import MakeJobSpec

    from assay_sweep.job_spec import JobSpec
    from assay_sweep.worker.fork_client import ForkServer


@pytest.fixture
def launcher(fork_server: ForkServer) -> Iterator[LocalLauncher]:
    launcher = LocalLauncher(jobs_at_once=2)
    yield launcher
    launcher.close()


def output(job_spec: JobSpec) -> str:
    return Path(job_spec.output).read_text(encoding="utf-8", errors="replace")


@pytest.mark.always("exit", "memory", "stop", "hang")
@pytest.mark.parametrize("ending", ENDINGS)
def test_it_keeps_the_promises_of_a_launcher(ending: str, launcher: LocalLauncher, tmp_path: Path) -> None:
    check_launcher(launcher, tmp_path, [ending])


def test_what_a_job_prints_goes_to_its_file(launcher: LocalLauncher, make_job_spec: MakeJobSpec) -> None:
    job_spec = make_job_spec("seed=3", number=7)
    run(launcher, job_spec)
    record = RunRecord.load(Path(job_spec.run_dir))
    assert (record.overrides, record.machine["threads"]) == (["seed=3"], 1)
    assert output(job_spec).startswith("--- job 7, attempt 1, ")
    assert "seed=3" in output(job_spec).splitlines()[0]
    assert "test" in output(job_spec)


def test_jobs_do_not_see_each_other(
    launcher: LocalLauncher, make_job_spec: MakeJobSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMP_TEST_GONE", "1")
    monkeypatch.setenv("OMP_TEST_KEPT", "2")
    one = make_job_spec(number=0, environment={"OMP_TEST_ONE": "x", "OMP_TEST_GONE": None})
    two = make_job_spec(number=1)
    run(launcher, one, two)
    seen = [environment(job_spec) for job_spec in (one, two)]
    assert [{name: value for name, value in one.items() if "TEST" in name} for one in seen] == [
        {"OMP_TEST_ONE": "x", "OMP_TEST_KEPT": "2"},
        {"OMP_TEST_GONE": "1", "OMP_TEST_KEPT": "2"},
    ]


def test_a_job_that_closes_every_descriptor_harms_nobody(
    launcher: LocalLauncher, make_job_spec: MakeJobSpec
) -> None:
    outcomes = run(launcher, make_job_spec("callbacks.poison.kind=close"), make_job_spec(number=1))
    assert outcomes[1].status == "finished"
    assert (outcomes[0].status, outcomes[0].cause) == ("failed", "machine"), "it cannot write its log"
    assert "Bad file descriptor" in outcomes[0].reason


def test_what_a_job_has_started_ends_with_it(
    launcher: LocalLauncher, make_job_spec: MakeJobSpec, tmp_path: Path
) -> None:
    run(launcher, make_job_spec("callbacks.poison.kind=children"))
    (path,) = tmp_path.glob("pids-*")
    started = [int(pid) for pid in path.read_text().split()]
    assert len(started) == 2
    until(lambda: all(map(is_gone, started)))


def test_closing_ends_what_runs(fork_server: ForkServer, make_job_spec: MakeJobSpec) -> None:
    launcher = LocalLauncher(jobs_at_once=2)
    job_spec = make_job_spec("callbacks.poison.kind=hang")
    launcher.start(job_spec)
    until(lambda: output_process(job_spec) > 0, PATIENCE)
    process = output_process(job_spec)
    launcher.close()
    assert is_gone(process)
    assert launcher.wait(0) == {}


def output_process(job_spec: JobSpec) -> int:
    """The process that has written the first line of a job's output."""
    path = Path(job_spec.output)
    line = path.read_text(encoding="utf-8").partition("\n")[0] if path.is_file() else ""
    return int(line.partition("process ")[2].partition(":")[0] or 0)


def test_cores_are_shared_among_processes(
    make_job_spec: MakeJobSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("assay_sweep.launcher.local.usable_cores", lambda: 4)
    launcher = LocalLauncher(threads_per_job=2)
    assert launcher.slots == 2
    assert LocalLauncher(threads_per_job=8).slots == 1
    assert LocalLauncher(threads_per_job=8).has_room(make_job_spec(processes=3))  # while nothing runs
    launcher.start(make_job_spec("callbacks.poison.kind=hang"))
    assert launcher.has_room(make_job_spec())
    assert not launcher.has_room(make_job_spec(processes=2))
    launcher.close()


def test_a_gpu_belongs_to_one_job(fork_server: ForkServer, make_job_spec: MakeJobSpec) -> None:
    launcher = LocalLauncher(gpus=["7", "GPU-x", "9"])
    job_specs = [make_job_spec(number=number, gpus=1 + (number == 2)) for number in range(3)]
    assert set(run(launcher, *job_specs)) == {0, 1, 2}
    leased = [environment(job_spec)["CUDA_VISIBLE_DEVICES"].split(",") for job_spec in job_specs]
    assert [len(one) for one in leased] == [1, 1, 2]
    assert {one for several in leased for one in several} <= {"7", "GPU-x", "9"}
    without = make_job_spec()
    run(launcher, without)
    assert environment(without)["CUDA_VISIBLE_DEVICES"] == ""


def test_more_gpus_than_there_are_is_refused(fork_server: ForkServer, make_job_spec: MakeJobSpec) -> None:
    with pytest.raises(AssayError, match="needs 3 GPUs; there is 0, 1"):
        LocalLauncher(gpus=["0", "1"]).has_room(make_job_spec(gpus=3))
    with pytest.raises(AssayError, match="needs 1 GPUs"):
        LocalLauncher(gpus=0).has_room(make_job_spec(gpus=1))


def test_a_fork_server_that_is_killed_is_replaced(
    launcher: LocalLauncher, fork_server: ForkServer, make_job_spec: MakeJobSpec
) -> None:
    hanging = make_job_spec("callbacks.poison.kind=hang", number=0)
    launcher.start(hanging)
    until(lambda: output_process(hanging) > 0, PATIENCE)
    process = output_process(hanging)
    os.kill(fork_server.pid, 9)
    (outcome,) = launcher.wait(10.0).values()
    assert (outcome.status, outcome.cause, outcome.transient) == ("failed", "killed", True)
    until(lambda: is_gone(process), 5.0)
    assert run(launcher, make_job_spec(number=1))[1].status == "finished"


@pytest.fixture
def in_the_project(make_job_spec: MakeJobSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_job_spec()
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))


@pytest.mark.usefixtures("in_the_project")
def test_a_job_has_ended_when_it_was_started(make_job_spec: MakeJobSpec) -> None:
    launcher = SerialLauncher()
    job_spec = make_job_spec(number=3)
    assert launcher.has_room(job_spec)
    launcher.start(job_spec)
    assert not launcher.has_room(job_spec), "its end is to be looked at first"
    ((number, outcome),) = launcher.wait(0).items()
    assert (number, outcome.status) == (3, "finished")
    assert "test/loss" in outcome.metrics
    assert launcher.wait(0) == {}
    assert not Path(job_spec.output).exists(), "what it prints is shown"
    launcher.start(make_job_spec("callbacks.poison.kind=exception"))
    (outcome,) = launcher.wait(0).values()
    assert (outcome.status, outcome.cause) == ("failed", "exception")
    assert outcome.reason.startswith("ValueError: this is poison (")


@pytest.mark.always("exception", "non_finite")
@pytest.mark.parametrize("ending", ["finish", "exception", "connection", "non_finite"])
def test_this_process_keeps_the_promises_of_a_launcher(
    ending: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As far as it outlives the job."""
    monkeypatch.setattr("tempfile.mkdtemp", Mock(return_value=str(tmp_path)))
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    check_launcher(SerialLauncher(), tmp_path, [ending])


@pytest.mark.usefixtures("in_the_project")
def test_a_signal_for_the_job_is_one_for_the_sweep(make_job_spec: MakeJobSpec) -> None:
    received: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, _: received.append(number))
    try:
        launcher = SerialLauncher()
        launcher.start(make_job_spec("callbacks.poison.kind=interrupt"))
    finally:
        signal.signal(signal.SIGINT, before)
    (outcome,) = launcher.wait(0).values()
    assert outcome.status == "interrupted"
    assert received == [signal.SIGINT]


FILE = Path(__file__).parents[3] / "examples" / "my_project" / "my_project" / "nice_launcher.py"


@pytest.fixture
def nice_launcher(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    spec = importlib.util.spec_from_file_location("nice_launcher", FILE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, module)
    spec.loader.exec_module(module)
    launcher = module.NiceLauncher(niceness=1)
    yield launcher
    launcher.close()


@pytest.mark.long
@pytest.mark.timeout(900)
def test_the_launcher_of_the_examples_keeps_them(nice_launcher: Any, tmp_path: Path) -> None:
    check_launcher(nice_launcher, tmp_path, ["exit", "sigkill", "memory", "stop", "hang"])


@pytest.mark.long
def test_a_job_is_nice_and_ends_with_its_sweep(nice_launcher: Any, make_job_spec: MakeJobSpec) -> None:
    """As when the sweep's process is killed: the pipe that it holds has its end."""
    job_spec = make_job_spec(*ENDLESS)
    nice_launcher.start(job_spec)
    process = nice_launcher._running[0].process
    until(Path(job_spec.run_dir, "metrics.csv").is_file)
    assert psutil.Process(process.pid).nice() == psutil.Process().nice() + 1
    process.stdin.close()
    assert next_end(nice_launcher).signal == "SIGTERM"
    assert Path(job_spec.run_dir, "checkpoints", "last.ckpt").is_file()
