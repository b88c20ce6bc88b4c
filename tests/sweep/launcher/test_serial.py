from __future__ import annotations

import signal
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from assay.sweep.launcher.serial import SerialPool

if TYPE_CHECKING:
    from tests.sweep.conftest import MakeTask


@pytest.fixture(autouse=True)
def in_the_project(make_task: MakeTask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_task()
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))


def test_a_task_has_ended_when_it_was_started(make_task: MakeTask) -> None:
    pool = SerialPool()
    task = make_task(number=3)
    assert pool.has_room(task)
    pool.start(task)
    assert not pool.has_room(task), "its end is to be looked at first"
    (ended,) = pool.wait(0)
    assert (ended.number, ended.outcome.state) == (3, "done")
    assert "test/loss" in ended.outcome.metrics
    assert pool.wait(0) == []
    assert not Path(task.output).exists(), "what it prints is shown"


def test_what_fails_is_told(make_task: MakeTask) -> None:
    pool = SerialPool()
    pool.start(make_task("callbacks.poison.kind=exception"))
    (ended,) = pool.wait(0)
    assert (ended.outcome.state, ended.outcome.cause) == ("failed", "exception")
    assert ended.outcome.reason == "ValueError: this is poison"


def test_a_signal_for_the_job_is_one_for_the_sweep(make_task: MakeTask) -> None:
    received: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, _: received.append(number))
    try:
        pool = SerialPool()
        pool.start(make_task("callbacks.poison.kind=interrupt"))
    finally:
        signal.signal(signal.SIGINT, before)
    (ended,) = pool.wait(0)
    assert ended.outcome.state == "interrupted"
    assert received == [signal.SIGINT]
