"""The process that jobs are forked from, what a job does in it, and what is known of its end."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pytest
from tests.sweep.conftest import environment, is_gone, until
from tests.sweep.launcher.shared import ENDLESS

from assay.assemble.trainer import VARIABLE
from assay.check.checker import Checker
from assay.compose.compose import Job
from assay.errors import AssayError, ConfigError
from assay.record.run_record import Outcome, RunRecord, now
from assay_sweep.job_spec import ExitStatus, JobSpec, outcome_after
from assay_sweep.worker.fork_client import CheckProcess, ForkServer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.sweep.conftest import MakeJobSpec


def test_a_fork_server_has_one_thread_and_no_gpu(fork_server: ForkServer, make_job_spec: MakeJobSpec) -> None:
    job_specs = make_job_spec(), make_job_spec()
    for job_spec in job_specs:  # one after the other: the first has trained when the second is forked
        key = fork_server.start(job_spec)
        assert list(fork_server.wait([key], 60.0)) == [key]
    assert [environment(job_spec)[VARIABLE] for job_spec in job_specs] == ["1", "1"], "none is inherited"
    process = psutil.Process(fork_server.pid)
    assert process.num_threads() == 1
    assert not [path.path for path in process.open_files() if "nvidia" in path.path]


@pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="elsewhere it looks for jobs that have ended")
def test_a_fork_server_sleeps_until_something_comes(
    fork_server: ForkServer, make_job_spec: MakeJobSpec
) -> None:
    key = fork_server.start(make_job_spec())
    fork_server.wait([key], 60.0)
    process = psutil.Process(fork_server.pid)
    before = process.num_ctx_switches().voluntary
    fork_server.wait([], 2.0)
    assert process.num_ctx_switches().voluntary - before < 20


def test_ctrl_c_is_for_the_driver_alone(fork_server: ForkServer, make_job_spec: MakeJobSpec) -> None:
    assert os.getsid(fork_server.pid) == fork_server.pid
    os.kill(fork_server.pid, signal.SIGINT)
    key = fork_server.start(make_job_spec())
    assert fork_server.wait([key], 60.0)[key].exit_code == 0


def test_a_process_that_was_forked_ends_no_fork_server_but_its_own(fork_server: ForkServer) -> None:
    child = os.fork()
    if child == 0:
        fork_server.close()  # as `atexit` does
        os._exit(ForkServer.shared.cache_info().currsize)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0, "it had its parent's"
    os.kill(fork_server.pid, 0)


def test_a_fork_server_that_cannot_start_is_one_error(
    make_job_spec: MakeJobSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from assay_sweep.worker.fork_client import ForkServer

    (tmp_path / "lightning.py").write_text("raise ImportError('libcudart.so is not there')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(sys, "path", [*sys.path])  # a process that is forked from this one adds it here
    fork_server = ForkServer()

    def begin_two() -> None:
        for _ in range(2):  # the first may be taken before the process has come to its imports
            key = fork_server.start(make_job_spec())
            assert fork_server.wait([key], 60.0)[key].exit_code == -9

    with pytest.raises(AssayError, match=r"cannot be started: ImportError: libcudart\.so is not there"):
        begin_two()
    monkeypatch.delenv("PYTHONPATH")
    fork_server.close()


HEAVY = {"torch", "torchvision", "torchmetrics", "lightning", "numpy", "sklearn", "pandas"}
DRIVER = """
import sys
from assay_sweep.worker.fork_client import ForkServer
from assay_sweep.job_spec import JobSpec
fork_server = ForkServer.shared()
fork_server.start(JobSpec.from_json(sys.stdin.readline()))
print(fork_server.pid, flush=True)
sys.stdin.readline()
print(*{name.partition(".")[0] for name in sys.modules}, flush=True)
"""


def test_a_job_imports_nothing_heavy_nor_does_its_driver_and_both_end_together(
    make_job_spec: MakeJobSpec, tmp_path: Path
) -> None:
    """For a driver that is killed see `tests/sweep/test_killed_sweeps.py`."""
    job_spec = make_job_spec(*ENDLESS)
    run_dir = Path(job_spec.run_dir)
    with (
        (tmp_path / "errors").open("w") as errors,
        subprocess.Popen(
            [sys.executable, "-c", DRIVER],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            env=os.environ | {"PYTHONVERBOSE": "1"},  # each process says what it imports
        ) as driver,
    ):
        assert driver.stdin is not None
        assert driver.stdout is not None
        driver.stdin.write(job_spec.to_json() + "\n")
        driver.stdin.flush()
        fork_server = int(driver.stdout.readline())
        until((run_dir / "metrics.csv").is_file)
        jobs = [child.pid for child in psutil.Process(fork_server).children()]
        driver.stdin.write("\n")
        driver.stdin.flush()
        assert not (HEAVY - {"numpy"}) & {*driver.stdout.readline().split()}
        assert driver.wait(30.0) == 0
    assert len(jobs) == 1
    assert all(map(is_gone, [fork_server, *jobs]))
    assert json.loads((run_dir / "record.json").read_text(encoding="utf-8"))["status"] == "interrupted"
    assert (run_dir / "checkpoints" / "last.ckpt").is_file()

    said = Path(job_spec.output).read_text(encoding="utf-8").splitlines()
    imported = {line.split("'")[1] for line in said if line.startswith("import '")}
    assert "poisoned.poison" in imported, "the project's own, which may change while the sweep runs"
    late = {name for name in imported if name.partition(".")[0] in HEAVY}
    assert {name for name in late if not name.startswith("torch.utils.serialization")} == set()


def run(fork_server: ForkServer, job_spec: JobSpec) -> Outcome:
    key = fork_server.start(job_spec)
    return Outcome.from_json(fork_server.wait([key], 60.0)[key].outcome)


def test_data_that_is_not_what_the_check_saw_is_refused(
    fork_server: ForkServer, make_job_spec: MakeJobSpec
) -> None:
    spec = {"task": "multiclass", "num_classes": 9, "input_shape": [1, 8, 8]}
    outcome = run(fork_server, make_job_spec(spec=spec))
    assert (outcome.status, outcome.transient) == ("failed", False)
    assert "num_classes" in outcome.reason


def record(**fields: Any) -> RunRecord:
    plain: dict[str, Any] = {"run_id": "0", "name": "x", "status": "finished", "started": now(), "seed": 0}
    return RunRecord(**(plain | {"fingerprint": "0", "config_fingerprint": "0"} | fields))


@pytest.fixture
def job_spec(tmp_path: Path) -> JobSpec:
    (tmp_path / "run").mkdir()
    return JobSpec(0, 1, "run", "{}", [], {}, cwd=str(tmp_path), output=str(tmp_path / "run.txt"))


def test_what_a_process_said_counts_whatever_became_of_it_then(job_spec: JobSpec) -> None:
    said = Outcome("finished", metrics={"val/loss": 0.5}, seconds=3.0)
    assert outcome_after(job_spec, ExitStatus(-11, said.to_json())) == said


def test_without_a_word_the_record_counts(job_spec: JobSpec, tmp_path: Path) -> None:
    record(metrics={"test/loss": 1.0}).save(tmp_path / "run")
    assert outcome_after(job_spec, ExitStatus(0, seconds=5.0)).metrics == {"test/loss": 1.0}


@pytest.mark.parametrize(("status", "age"), [("failed", 60), ("running", 0)])
def test_a_record_of_another_process_or_without_an_end_does_not_count(
    status: str, age: int, job_spec: JobSpec, tmp_path: Path
) -> None:
    record(status=status, reason="ValueError: no").save(tmp_path / "run")
    old = time.time() - age
    os.utime(tmp_path / "run" / "record.json", (old, old))
    assert outcome_after(job_spec, ExitStatus(-9, seconds=5.0)).reason == "its process was killed by SIGKILL"


@pytest.mark.parametrize(
    ("exit_status", "signal_sent", "status", "cause"),
    [
        (ExitStatus(0), "SIGTERM", "failed", "exception"),
        (ExitStatus(-15), "SIGTERM", "interrupted", ""),
        (ExitStatus(-9), "SIGTERM", "failed", "killed"),
        (ExitStatus(-15), "SIGKILL", "interrupted", ""),
        (ExitStatus(-15), "", "failed", "killed"),
        (ExitStatus(-9, memory_ran_out=True), "", "failed", "out_of_memory"),
        (ExitStatus(-9, memory_ran_out=True), "SIGKILL", "interrupted", ""),
    ],
)
def test_without_a_record_the_exit_status_counts(
    exit_status: ExitStatus, signal_sent: str, status: str, cause: str, job_spec: JobSpec
) -> None:
    outcome = outcome_after(job_spec, exit_status, signal_sent=signal_sent)
    assert (outcome.status, outcome.cause) == (status, cause)


def test_a_job_that_took_too_long_and_did_not_save_has_timed_out(job_spec: JobSpec) -> None:
    limited = replace(job_spec, timeout_min=2.5)
    outcome = outcome_after(limited, ExitStatus(124, seconds=160.0))
    assert (outcome.cause, outcome.reason) == ("timed_out", "took longer than 2.5 min")
    assert outcome_after(job_spec, ExitStatus(124)).cause == "exception"


def test_a_job_that_takes_too_long_saves(fork_server: ForkServer, make_job_spec: MakeJobSpec) -> None:
    job_spec = make_job_spec(*ENDLESS, timeout_min=0.15)
    outcome = run(fork_server, job_spec)
    assert (outcome.cause, outcome.transient) == ("timed_out", True)
    assert Path(job_spec.run_dir, "checkpoints", "last.ckpt").is_file()


def test_the_last_words_of_an_abort_tell_of_memory(job_spec: JobSpec, tmp_path: Path) -> None:
    (tmp_path / "run.txt").write_bytes(b"x" * 100_000 + b"\xff what():  std::bad_alloc\n")
    assert outcome_after(job_spec, ExitStatus(-6)).cause == "out_of_memory"
    assert outcome_after(job_spec, ExitStatus(-15)).cause == "killed"


MakeJob = Callable[..., Job]


@pytest.fixture
def process(fork_server: ForkServer) -> Iterator[CheckProcess]:
    made = CheckProcess(fork_server)
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
