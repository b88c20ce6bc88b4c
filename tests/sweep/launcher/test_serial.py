from __future__ import annotations

import signal
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from assay.sweep.launcher.serial import SerialLauncher

if TYPE_CHECKING:
    from tests.sweep.conftest import MakeJobSpec


@pytest.fixture(autouse=True)
def in_the_project(make_job_spec: MakeJobSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_job_spec()
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))


def test_a_job_spec_has_ended_when_it_was_started(make_job_spec: MakeJobSpec) -> None:
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


def test_what_fails_is_told(make_job_spec: MakeJobSpec) -> None:
    launcher = SerialLauncher()
    launcher.start(make_job_spec("callbacks.poison.kind=exception"))
    (outcome,) = launcher.wait(0).values()
    assert (outcome.status, outcome.cause) == ("failed", "exception")
    assert outcome.reason.startswith("ValueError: this is poison (")
    assert "poisoned/poison.py:" in outcome.reason


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
