"""Jobs side by side in processes of their own: what becomes of them, and of what they do to each other."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.sweep.conftest import PATIENCE, environment, is_gone, run, until

from assay.errors import AssayError, ConfigError
from assay.record.run_record import RunRecord
from assay.sweep.launcher.local import LocalPool

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.sweep.conftest import MakeTask

    from assay.sweep.job_spec import Task
    from assay.sweep.worker.fork_server import Nursery


@pytest.fixture
def pool(nursery: Nursery) -> Iterator[LocalPool]:
    pool = LocalPool(jobs_at_once=2)
    yield pool
    pool.close()


def output(task: Task) -> str:
    return Path(task.output).read_text(encoding="utf-8", errors="replace")


# -- a job that ends well ----------------------------------------------------------------------------------


def test_a_job_runs_to_its_end(pool: LocalPool, make_task: MakeTask) -> None:
    task = make_task("seed=3", number=7)
    outcome = run(pool, task)[7]
    record = RunRecord.load(Path(task.run_dir))
    assert (outcome.state, outcome.cause, outcome.reason) == ("done", "", "")
    assert outcome.metrics == record.metrics
    assert record.status == "finished"
    assert record.overrides == ["seed=3"]
    assert record.machine["threads"] == 1
    assert output(task).startswith("--- job 7, attempt 1, ")
    assert "seed=3" in output(task).splitlines()[0]
    assert "test" in output(task)


def test_attempts_at_one_job_share_its_output(pool: LocalPool, make_task: MakeTask) -> None:
    first = make_task("callbacks.poison.kind=exception")
    run(pool, first)
    second = make_task(attempt=2, output=first.output)
    run(pool, second)
    assert [line[:20] for line in output(first).splitlines() if line.startswith("---")] == [
        "--- job 0, attempt 1",
        "--- job 0, attempt 2",
    ]


def test_jobs_do_not_see_each_other(
    pool: LocalPool, make_task: MakeTask, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMP_TEST_GONE", "1")
    monkeypatch.setenv("OMP_TEST_KEPT", "2")
    one = make_task(number=0, environment={"OMP_TEST_ONE": "x", "OMP_TEST_GONE": None})
    two = make_task(number=1)
    run(pool, one, two)
    seen = [environment(task) for task in (one, two)]
    assert [{name: value for name, value in one.items() if "TEST" in name} for one in seen] == [
        {"OMP_TEST_ONE": "x", "OMP_TEST_KEPT": "2"},
        {"OMP_TEST_GONE": "1", "OMP_TEST_KEPT": "2"},
    ]


def test_threads_are_those_of_the_pool(nursery: Nursery, make_task: MakeTask) -> None:
    task = make_task()
    run(LocalPool(threads_per_job=2), task)
    assert RunRecord.load(Path(task.run_dir)).machine["threads"] == 2


# -- a job that ends badly ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "expected", "reason"),
    [
        ("exception", ("exception", False), "ValueError: this is poison"),
        ("connection", ("exception", True), "ConnectionResetError: the other side is gone"),
        ("sys_exit", ("exception", False), "SystemExit: 3"),
        ("exit", ("exception", False), "its process ended with exit code 3 and did not say why"),
        ("nan", ("non_finite", False), "the loss became nan in batch 2"),
        ("segfault", ("killed", True), "its process was killed by SIGSEGV"),
        ("abort", ("killed", True), "its process was killed by SIGABRT"),
        ("sigkill", ("killed", True), "its process was killed by SIGKILL"),
        ("memory", ("out_of_memory", False), "allocate"),
        ("python_memory", ("out_of_memory", False), "MemoryError"),
    ],
)
def test_what_kills_a_job_is_told_and_takes_nothing_along(
    kind: str, expected: tuple[str, bool], reason: str, pool: LocalPool, make_task: MakeTask
) -> None:
    bad = make_task(f"callbacks.poison.kind={kind}", number=0, memory_gb=0.5)
    outcomes = run(pool, bad, make_task(number=1))
    told = outcomes[0]
    assert (told.state, told.cause, told.transient) == ("failed", *expected), told.reason
    assert reason in told.reason
    assert outcomes[1].state == "done"
    record = RunRecord.load(Path(bad.run_dir))
    assert record.cause == (told.cause if record.status == "failed" else "")  # where it could still say so


def test_a_segfault_says_where(pool: LocalPool, make_task: MakeTask) -> None:
    task = make_task("callbacks.poison.kind=segfault")
    run(pool, task)
    assert "poison.py" in output(task)


def test_what_the_config_has_wrong_is_an_exception(pool: LocalPool, make_task: MakeTask) -> None:
    task = make_task("data.split.val=2")
    outcome = run(pool, task)[0]
    assert (outcome.state, outcome.cause, outcome.transient) == ("failed", "exception", False)
    assert "data.split" in outcome.reason
    assert f"error: {outcome.reason}" in output(task)


def test_a_job_that_closes_every_descriptor_harms_nobody(pool: LocalPool, make_task: MakeTask) -> None:
    outcomes = run(pool, make_task("callbacks.poison.kind=close"), make_task(number=1), make_task(number=2))
    assert [outcomes[number].state for number in (1, 2)] == ["done"] * 2
    assert (outcomes[0].state, outcomes[0].cause) == ("failed", "exception"), "it cannot write its log"
    assert "Bad file descriptor" in outcomes[0].reason


def test_a_job_may_print_what_it_likes(pool: LocalPool, make_task: MakeTask) -> None:
    task = make_task("callbacks.poison.kind=flood")
    assert run(pool, task)[0].state == "done"
    assert Path(task.output).stat().st_size > 200_000_000
    Path(task.output).unlink()


@pytest.mark.parametrize("kind", ["children", "children_and_on"])
def test_what_a_job_has_started_ends_with_it(
    kind: str, pool: LocalPool, make_task: MakeTask, tmp_path: Path
) -> None:
    run(pool, make_task(f"callbacks.poison.kind={kind}"))
    (path,) = tmp_path.glob("pids-*")
    started = [int(pid) for pid in path.read_text().split()]
    assert len(started) == 2
    until(lambda: all(map(is_gone, started)))


# -- stopping ----------------------------------------------------------------------------------------------


def test_a_job_that_is_told_to_stop_saves(pool: LocalPool, make_task: MakeTask) -> None:
    endless = ("trainer.max_epochs=100000", "trainer.limit_val_batches=0", "callbacks.checkpoint=null")
    task = make_task(*endless)
    pool.start(task)
    until(lambda: Path(task.run_dir, "checkpoints", "last.ckpt").is_file(), PATIENCE)
    pool.stop(0, now=False)
    (ended,) = pool.wait(PATIENCE)
    assert (ended.outcome.state, ended.outcome.reason) == ("interrupted", "stopped by SIGTERM")
    assert Path(task.run_dir, "checkpoints", "last.ckpt").is_file()
    again = make_task(run_dir=task.run_dir, config=task.config, resume=True, attempt=2)
    pool.start(again)
    until(lambda: RunRecord.load(Path(task.run_dir)).status == "running")
    pool.stop(0, now=True)
    (ended,) = pool.wait(PATIENCE)
    assert ended.outcome.state == "interrupted"


def test_a_job_that_is_stopped_before_it_began_is_interrupted(pool: LocalPool, make_task: MakeTask) -> None:
    pool.start(make_task())
    pool.stop(0, now=False)
    (ended,) = pool.wait(PATIENCE)
    assert ended.outcome.state == "interrupted"


def test_a_job_that_hangs_is_ended_at_once(pool: LocalPool, make_task: MakeTask) -> None:
    task = make_task("callbacks.poison.kind=hang")
    pool.start(task)
    until(lambda: Path(task.run_dir, "record.json").is_file(), PATIENCE)
    time.sleep(0.5)
    pool.stop(0, now=False)
    assert pool.wait(0.5) == []
    pool.stop(0, now=True)
    (ended,) = pool.wait(5.0)
    assert (ended.outcome.state, ended.outcome.reason) == ("interrupted", "ended by SIGKILL")


def test_closing_ends_what_runs(nursery: Nursery, make_task: MakeTask) -> None:
    pool = LocalPool(jobs_at_once=2)
    task = make_task("callbacks.poison.kind=hang")
    pool.start(task)
    until(lambda: output_process(task) > 0, PATIENCE)
    process = output_process(task)
    pool.close()
    assert is_gone(process)
    assert pool.wait(0) == []


def output_process(task: Task) -> int:
    """The process that has written the first line of a task's output."""
    path = Path(task.output)
    line = path.read_text(encoding="utf-8").partition("\n")[0] if path.is_file() else ""
    return int(line.partition("process ")[2].partition(":")[0] or 0)


# -- room --------------------------------------------------------------------------------------------------


def test_a_slot_is_filled_the_moment_one_ends(nursery: Nursery, make_task: MakeTask) -> None:
    pool = LocalPool(jobs_at_once=1)
    first, second = make_task(number=0), make_task(number=1)
    assert pool.has_room(first)
    pool.start(first)
    assert not pool.has_room(second)
    (ended,) = pool.wait(PATIENCE)
    assert ended.number == 0
    assert pool.has_room(second)


def test_cores_are_shared_among_processes(make_task: MakeTask, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("assay.sweep.launcher.local._cores", lambda: 4)
    pool = LocalPool(threads_per_job=2)
    assert pool.slots == 2
    assert LocalPool(threads_per_job=8).slots == 1
    assert LocalPool(threads_per_job=8).has_room(make_task(processes=3))  # while nothing runs
    pool.start(make_task("callbacks.poison.kind=hang"))
    assert pool.has_room(make_task())
    assert not pool.has_room(make_task(processes=2))
    pool.close()


@pytest.mark.parametrize("wrong", [{"jobs_at_once": 0}, {"threads_per_job": "auto "}, {"jobs_per_gpu": -1}])
def test_what_cannot_be_a_number_of_jobs_is_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(ConfigError, match=rf"hydra\.launcher\.{next(iter(wrong))}"):
        LocalPool(**wrong)


def test_a_gpu_belongs_to_one_job(nursery: Nursery, make_task: MakeTask) -> None:
    pool = LocalPool(gpus=["7", "GPU-x", "9"])
    tasks = [make_task(number=number, gpus=1 + (number == 2)) for number in range(5)]
    assert set(run(pool, *tasks)) == {0, 1, 2, 3, 4}
    leased = [environment(task)["CUDA_VISIBLE_DEVICES"].split(",") for task in tasks]
    assert [len(one) for one in leased] == [1, 1, 2, 1, 1]
    assert {one for several in leased for one in several} <= {"7", "GPU-x", "9"}


def test_a_job_without_a_gpu_sees_none_of_the_pool(nursery: Nursery, make_task: MakeTask) -> None:
    pool = LocalPool(gpus=["0"])
    with_one, without = make_task(number=0, gpus=1), make_task(number=1)
    run(pool, with_one, without)
    assert environment(without)["CUDA_VISIBLE_DEVICES"] == ""


def test_more_gpus_than_there_are_is_refused(nursery: Nursery, make_task: MakeTask) -> None:
    with pytest.raises(AssayError, match="needs 3 GPUs; there is 0, 1"):
        LocalPool(gpus=["0", "1"]).has_room(make_task(gpus=3))
    with pytest.raises(AssayError, match="needs 1 GPUs"):
        LocalPool(gpus=0).has_room(make_task(gpus=1))


# -- the nursery dies --------------------------------------------------------------------------------------


def test_a_nursery_that_is_killed_is_replaced(pool: LocalPool, nursery: Nursery, make_task: MakeTask) -> None:
    hanging = make_task("callbacks.poison.kind=hang", number=0)
    pool.start(hanging)
    until(lambda: output_process(hanging) > 0, PATIENCE)
    process = output_process(hanging)
    os.kill(nursery.pid, 9)
    (ended,) = pool.wait(10.0)
    assert (ended.outcome.state, ended.outcome.cause, ended.outcome.transient) == ("failed", "killed", True)
    assert is_gone(process)
    assert run(pool, make_task(number=1))[1].state == "done"
