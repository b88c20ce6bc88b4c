"""Jobs side by side in processes of their own: what becomes of them, and of what they do to each other."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.sweep.conftest import PATIENCE, environment, is_gone, run, until
from tests.sweep.launcher.shared import (
    ENDLESS,
    POISON,
    check_failure,
    check_hanging_job_is_ended,
    check_runs_to_its_end,
    next_end,
)

from assay.errors import AssayError, ConfigError
from assay.record.run_record import RunRecord
from assay.sweep.launcher.local import LocalLauncher

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.sweep.conftest import MakeJobSpec

    from assay.sweep.job_spec import JobSpec
    from assay.sweep.worker.fork_client import ForkServer


@pytest.fixture
def launcher(fork_server: ForkServer) -> Iterator[LocalLauncher]:
    launcher = LocalLauncher(jobs_at_once=2)
    yield launcher
    launcher.close()


def output(job_spec: JobSpec) -> str:
    return Path(job_spec.output).read_text(encoding="utf-8", errors="replace")


# -- a job that ends well -------------------------------------------------------------------------------


def test_a_job_runs_to_its_end(launcher: LocalLauncher, make_job_spec: MakeJobSpec) -> None:
    check_runs_to_its_end(launcher, make_job_spec)


def test_attempts_at_one_job_share_its_output(launcher: LocalLauncher, make_job_spec: MakeJobSpec) -> None:
    first = make_job_spec("callbacks.poison.kind=exception")
    run(launcher, first)
    second = make_job_spec(attempt=2, output=first.output)
    run(launcher, second)
    assert [line[:20] for line in output(first).splitlines() if line.startswith("---")] == [
        "--- job 0, attempt 1",
        "--- job 0, attempt 2",
    ]


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


def test_threads_are_those_of_the_launcher(fork_server: ForkServer, make_job_spec: MakeJobSpec) -> None:
    job_spec = make_job_spec()
    run(LocalLauncher(threads_per_job=2), job_spec)
    assert RunRecord.load(Path(job_spec.run_dir)).machine["threads"] == 2


# -- a job that ends badly ------------------------------------------------------------------------------


@pytest.mark.always("exception", "exit", "segfault", "memory")
@pytest.mark.parametrize("kind", POISON)
def test_what_kills_a_job_is_told_and_takes_nothing_along(
    kind: str, launcher: LocalLauncher, make_job_spec: MakeJobSpec
) -> None:
    check_failure(kind, launcher, make_job_spec)


def test_a_segfault_says_where(launcher: LocalLauncher, make_job_spec: MakeJobSpec) -> None:
    job_spec = make_job_spec("callbacks.poison.kind=segfault")
    run(launcher, job_spec)
    assert "poison.py" in output(job_spec)


def test_what_the_config_has_wrong_is_an_exception(
    launcher: LocalLauncher, make_job_spec: MakeJobSpec
) -> None:
    job_spec = make_job_spec("data.split.val=2")
    outcome = run(launcher, job_spec)[0]
    assert (outcome.status, outcome.cause, outcome.transient) == ("failed", "exception", False)
    assert "data.split" in outcome.reason
    assert f"error: {outcome.reason}" in output(job_spec)


def test_a_job_that_closes_every_descriptor_harms_nobody(
    launcher: LocalLauncher, make_job_spec: MakeJobSpec
) -> None:
    outcomes = run(
        launcher,
        make_job_spec("callbacks.poison.kind=close"),
        make_job_spec(number=1),
        make_job_spec(number=2),
    )
    assert [outcomes[number].status for number in (1, 2)] == ["finished"] * 2
    assert (outcomes[0].status, outcomes[0].cause) == ("failed", "machine"), "it cannot write its log"
    assert "Bad file descriptor" in outcomes[0].reason


def test_a_job_may_print_what_it_likes(launcher: LocalLauncher, make_job_spec: MakeJobSpec) -> None:
    job_spec = make_job_spec("callbacks.poison.kind=flood")
    assert run(launcher, job_spec)[0].status == "finished"
    assert Path(job_spec.output).stat().st_size > 200_000_000
    Path(job_spec.output).unlink()


@pytest.mark.parametrize("kind", ["children", "children_and_on"])
def test_what_a_job_has_started_ends_with_it(
    kind: str, launcher: LocalLauncher, make_job_spec: MakeJobSpec, tmp_path: Path
) -> None:
    run(launcher, make_job_spec(f"callbacks.poison.kind={kind}"))
    (path,) = tmp_path.glob("pids-*")
    started = [int(pid) for pid in path.read_text().split()]
    assert len(started) == 2
    until(lambda: all(map(is_gone, started)))


# -- stopping -------------------------------------------------------------------------------------------


def test_a_job_that_is_told_to_stop_saves(launcher: LocalLauncher, make_job_spec: MakeJobSpec) -> None:
    job_spec = make_job_spec(*ENDLESS, "callbacks.checkpoint=null")
    launcher.start(job_spec)
    until(lambda: Path(job_spec.run_dir, "checkpoints", "last.ckpt").is_file(), PATIENCE)
    launcher.stop(0, now=False)
    outcome = next_end(launcher)
    assert (outcome.status, outcome.reason) == ("interrupted", "stopped by SIGTERM")
    assert Path(job_spec.run_dir, "checkpoints", "last.ckpt").is_file()
    again = make_job_spec(run_dir=job_spec.run_dir, config=job_spec.config, resume=True, attempt=2)
    launcher.start(again)
    until(lambda: RunRecord.load(Path(job_spec.run_dir)).status == "running")
    launcher.stop(0, now=True)
    assert next_end(launcher).status == "interrupted"


def test_a_job_that_is_stopped_before_it_began_is_interrupted(
    launcher: LocalLauncher, make_job_spec: MakeJobSpec
) -> None:
    launcher.start(make_job_spec())
    launcher.stop(0, now=False)
    (outcome,) = launcher.wait(PATIENCE).values()
    assert outcome.status == "interrupted"


def test_a_job_that_hangs_is_ended_at_once(launcher: LocalLauncher, make_job_spec: MakeJobSpec) -> None:
    check_hanging_job_is_ended(launcher, make_job_spec)


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


# -- room -----------------------------------------------------------------------------------------------


def test_a_slot_is_filled_the_moment_one_ends(fork_server: ForkServer, make_job_spec: MakeJobSpec) -> None:
    launcher = LocalLauncher(jobs_at_once=1)
    first, second = make_job_spec(number=0), make_job_spec(number=1)
    assert launcher.has_room(first)
    launcher.start(first)
    assert not launcher.has_room(second)
    assert list(launcher.wait(PATIENCE)) == [0]
    assert launcher.has_room(second)


def test_cores_are_shared_among_processes(
    make_job_spec: MakeJobSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("assay.sweep.launcher.local.usable_cores", lambda: 4)
    launcher = LocalLauncher(threads_per_job=2)
    assert launcher.slots == 2
    assert LocalLauncher(threads_per_job=8).slots == 1
    assert LocalLauncher(threads_per_job=8).has_room(make_job_spec(processes=3))  # while nothing runs
    launcher.start(make_job_spec("callbacks.poison.kind=hang"))
    assert launcher.has_room(make_job_spec())
    assert not launcher.has_room(make_job_spec(processes=2))
    launcher.close()


@pytest.mark.parametrize("wrong", [{"jobs_at_once": 0}, {"threads_per_job": "auto "}, {"jobs_per_gpu": -1}])
def test_what_cannot_be_a_number_of_jobs_is_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(ConfigError, match=rf"hydra\.launcher\.{next(iter(wrong))}"):
        LocalLauncher(**wrong)


def test_a_gpu_belongs_to_one_job(fork_server: ForkServer, make_job_spec: MakeJobSpec) -> None:
    launcher = LocalLauncher(gpus=["7", "GPU-x", "9"])
    job_specs = [make_job_spec(number=number, gpus=1 + (number == 2)) for number in range(5)]
    assert set(run(launcher, *job_specs)) == {0, 1, 2, 3, 4}
    leased = [environment(job_spec)["CUDA_VISIBLE_DEVICES"].split(",") for job_spec in job_specs]
    assert [len(one) for one in leased] == [1, 1, 2, 1, 1]
    assert {one for several in leased for one in several} <= {"7", "GPU-x", "9"}


def test_a_job_without_a_gpu_sees_none_of_the_launcher(
    fork_server: ForkServer, make_job_spec: MakeJobSpec
) -> None:
    launcher = LocalLauncher(gpus=["0"])
    with_one, without = make_job_spec(number=0, gpus=1), make_job_spec(number=1)
    run(launcher, with_one, without)
    assert environment(without)["CUDA_VISIBLE_DEVICES"] == ""


def test_more_gpus_than_there_are_is_refused(fork_server: ForkServer, make_job_spec: MakeJobSpec) -> None:
    with pytest.raises(AssayError, match="needs 3 GPUs; there is 0, 1"):
        LocalLauncher(gpus=["0", "1"]).has_room(make_job_spec(gpus=3))
    with pytest.raises(AssayError, match="needs 1 GPUs"):
        LocalLauncher(gpus=0).has_room(make_job_spec(gpus=1))


# -- the fork server dies -------------------------------------------------------------------------------


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
