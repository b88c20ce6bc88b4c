"""What every launcher promises of a job in a process of its own; each launcher's tests call these."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

from tests.sweep.conftest import PATIENCE, run, until

from assay.record.run_record import Outcome, RunRecord

if TYPE_CHECKING:
    from tests.sweep.conftest import MakeJobSpec

    from assay_sweep.job_spec import JobSpec
    from assay_sweep.launcher.launcher import Launcher

POISON = {
    "exception": ("exception", "ValueError: this is poison"),
    "connection": ("machine", "ConnectionResetError: the other side is gone"),
    "exit": ("exception", "its process ended with exit code 3 and gave no reason"),
    "nan": ("non_finite", "the loss became nan in batch 2"),
    "segfault": ("killed", "its process was killed by SIGSEGV"),
    "sigkill": ("killed", "its process was killed by SIGKILL"),
    "memory": ("out_of_memory", "allocate"),
}
"""Cause and reason of each way to fail."""
ENDLESS = ("trainer.max_epochs=100000", "trainer.limit_val_batches=0")


def next_end(launcher: Launcher) -> Outcome:
    """The outcome of the one job that runs, once it has ended."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        for outcome in launcher.wait(1.0).values():
            return outcome
    raise AssertionError("no job has ended")


def check_runs_to_its_end(launcher: Launcher, make_job_spec: MakeJobSpec) -> JobSpec:
    job_spec = make_job_spec("seed=3", number=7)
    outcome = run(launcher, job_spec)[7]
    record = RunRecord.load(Path(job_spec.run_dir))
    assert outcome == Outcome("finished", metrics=record.metrics, best=record.best, seconds=outcome.seconds)
    assert (record.status, record.overrides, record.machine["threads"]) == ("finished", ["seed=3"], 1)
    printed = Path(job_spec.output).read_text(encoding="utf-8")
    assert printed.startswith("--- job 7, attempt 1, ")
    assert "seed=3" in printed.splitlines()[0]
    assert "test" in printed
    return job_spec


def check_failure(kind: str, launcher: Launcher, make_job_spec: MakeJobSpec) -> None:
    """What kills a job is told, and takes no other job along."""
    cause, reason = POISON[kind]
    bad = make_job_spec(f"callbacks.poison.kind={kind}", number=0, memory_gb=0.5)
    outcomes = run(launcher, bad, make_job_spec(number=1))
    assert (outcomes[0].status, outcomes[0].cause) == ("failed", cause), outcomes[0].reason
    assert reason in outcomes[0].reason
    assert outcomes[1].status == "finished"
    record = RunRecord.load(Path(bad.run_dir))
    assert record.cause == (cause if record.status == "failed" else "")  # where it could still say so


def check_stopped_job_saves(launcher: Launcher, make_job_spec: MakeJobSpec) -> None:
    job_spec = make_job_spec(*ENDLESS)
    launcher.start(job_spec)
    until(Path(job_spec.run_dir, "metrics.csv").is_file)
    check_saves_when_stopped(launcher, job_spec)


def check_saves_when_stopped(launcher: Launcher, job_spec: JobSpec) -> None:
    """A job, numbered 0, that runs and has its first metrics."""
    launcher.stop(0, now=False)
    outcome = next_end(launcher)
    assert outcome.status == "interrupted", outcome.reason
    assert outcome.signal in ("SIGTERM", "SIGUSR1"), f"Slurm sends the latter to all of a job: {outcome}"
    assert Path(job_spec.run_dir, "checkpoints", "last.ckpt").is_file()


def check_hanging_job_is_ended(launcher: Launcher, make_job_spec: MakeJobSpec) -> None:
    """One that takes no notice of SIGTERM is ended at once when that is asked for."""
    job_spec = make_job_spec("callbacks.poison.kind=hang")
    launcher.start(job_spec)
    until(Path(job_spec.run_dir, "record.json").is_file)
    time.sleep(0.5)
    launcher.stop(0, now=False)
    assert launcher.wait(1.0) == {}
    launcher.stop(0, now=True)
    outcome = next_end(launcher)
    assert (outcome.status, outcome.reason) == ("interrupted", "ended by SIGKILL")


def check_same_sweep(one: Path, two: Path, jobs: int) -> None:
    """The same tables, and the same weights of each job."""
    for name in ("results.csv", "groups.csv"):
        assert (one / name).read_bytes() == (two / name).read_bytes()
    for number in map(str, range(jobs)):
        ours, theirs = (RunRecord.load(folder / number).weights_sha256 for folder in (one, two))
        assert ours == theirs
