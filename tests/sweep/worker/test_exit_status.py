"""From the end of a process to the outcome of its job."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any

import pytest

from assay.record.outcome import Outcome
from assay.record.run_record import RunRecord, now
from assay.sweep.job_spec import JobSpec
from assay.sweep.worker.exit_status import ExitStatus, outcome_after

if TYPE_CHECKING:
    from pathlib import Path


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


@pytest.mark.parametrize("said", ["", "{", '{"status": "fin', "[]", '{"unknown": 1}'])
def test_half_a_word_is_none(said: str, job_spec: JobSpec) -> None:
    outcome = outcome_after(job_spec, ExitStatus(-9, said, seconds=2.0))
    assert (outcome.status, outcome.cause, outcome.transient, outcome.seconds) == (
        "failed",
        "killed",
        True,
        2,
    )


def test_without_a_word_the_record_counts(job_spec: JobSpec, tmp_path: Path) -> None:
    record(metrics={"test/loss": 1.0}).save(tmp_path / "run")
    assert outcome_after(job_spec, ExitStatus(0, seconds=5.0)).metrics == {"test/loss": 1.0}


def test_a_record_from_before_the_process_does_not_count(job_spec: JobSpec, tmp_path: Path) -> None:
    record(status="failed", reason="ValueError: no", cause="exception").save(tmp_path / "run")
    old = time.time() - 60
    os.utime(tmp_path / "run" / "record.json", (old, old))
    assert outcome_after(job_spec, ExitStatus(-9, seconds=5.0)).reason == "its process was killed by SIGKILL"


@pytest.mark.parametrize(
    ("exit_status", "signal_sent", "status", "cause"),
    [
        (ExitStatus(3), "", "failed", "exception"),
        (ExitStatus(0), "SIGTERM", "failed", "exception"),
        (ExitStatus(-15), "SIGTERM", "interrupted", ""),
        (ExitStatus(-9), "SIGKILL", "interrupted", ""),
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


def test_the_last_words_of_an_abort_tell_of_memory(job_spec: JobSpec, tmp_path: Path) -> None:
    (tmp_path / "run.txt").write_bytes(b"x" * 100_000 + b"\xff what():  std::bad_alloc\n")
    assert outcome_after(job_spec, ExitStatus(-6)).cause == "out_of_memory"
    assert outcome_after(job_spec, ExitStatus(-15)).cause == "killed"


def test_a_record_that_says_running_does_not_count(job_spec: JobSpec, tmp_path: Path) -> None:
    record(status="running").save(tmp_path / "run")
    assert outcome_after(job_spec, ExitStatus(-9, seconds=5.0)).reason == "its process was killed by SIGKILL"
