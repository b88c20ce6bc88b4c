"""What the tests of several launchers share, beside `assay_sweep.testing`."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

from tests.sweep.conftest import PATIENCE

from assay.record.run_record import RunRecord

if TYPE_CHECKING:
    from assay.record.run_record import Outcome
    from assay_sweep.job_spec import JobSpec
    from assay_sweep.launcher.launcher import Launcher

ENDLESS = ("trainer.max_epochs=100000", "trainer.limit_val_batches=0")


def next_end(launcher: Launcher) -> Outcome:
    """The outcome of the one job that runs, once it has ended."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        for outcome in launcher.wait(1.0).values():
            return outcome
    raise AssertionError("no job has ended")


def check_saves_when_stopped(launcher: Launcher, job_spec: JobSpec) -> None:
    """A job, numbered 0, that runs and has its first metrics."""
    launcher.stop(0, now=False)
    outcome = next_end(launcher)
    assert outcome.status == "interrupted", outcome.reason
    assert outcome.signal in ("SIGTERM", "SIGUSR1"), f"Slurm sends the latter to all of a job: {outcome}"
    assert Path(job_spec.run_dir, "checkpoints", "last.ckpt").is_file()


def check_same_sweep(one: Path, two: Path, jobs: int) -> None:
    """The same tables, and the same weights of each job."""
    for name in ("results.csv", "groups.csv"):
        assert (one / name).read_bytes() == (two / name).read_bytes()
    for number in map(str, range(jobs)):
        ours, theirs = (RunRecord.load(folder / number).weights_sha256 for folder in (one, two))
        assert ours == theirs
