"""What a Slurm job does when it is stopped or loses its machine."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import TYPE_CHECKING

from tests.sweep.conftest import environment, run, until
from tests.sweep.launcher.local_slurm import SETUP, launcher, process_of, weights
from tests.sweep.launcher.shared import check_stopped_job_saves, next_end

from assay.record.run_record import RunRecord
from assay.sweep.launcher.slurm import SlurmLauncher

if TYPE_CHECKING:
    from tests.sweep.conftest import MakeJobSpec

__all__ = ["launcher"]


def test_a_job_that_loses_its_machine_goes_on_at_the_next(
    launcher: SlurmLauncher, make_job_spec: MakeJobSpec, tmp_path: Path
) -> None:
    """The run it is compared with is one that nobody stops, after lines for the shell."""
    job_spec = make_job_spec("trainer.max_epochs=75", "seed=3")
    launcher.start(job_spec)
    until(Path(job_spec.run_dir, "metrics.csv").is_file)
    first = process_of(launcher)
    first.send_signal(signal.SIGTERM)  # Slurm sends it first, to all processes; submitit lets it pass
    first.send_signal(signal.SIGUSR2)
    end = next_end(launcher)
    assert end.status == "finished", end.reason
    record = RunRecord.load(Path(job_spec.run_dir))
    assert len(record.resumed) == 1
    assert record.resumed[0]["from_step"] > 0
    whole = make_job_spec("trainer.max_epochs=75", "seed=3", number=1)
    after_lines = SlurmLauncher(tmp_path / "other", cluster="local", setup=SETUP)
    ended = run(after_lines, whole)[1]
    after_lines.close()
    assert (ended.status, ended.metrics) == ("finished", record.metrics)
    assert environment(whole)["OMP_SETUP"] == "yes"
    assert weights(job_spec.run_dir) == weights(whole.run_dir)
    ours, theirs = (Path(one.run_dir, "metrics.csv").read_bytes() for one in (job_spec, whole))
    assert ours == theirs


def test_a_job_that_is_told_to_stop_saves_and_is_not_queued_again(
    launcher: SlurmLauncher, make_job_spec: MakeJobSpec
) -> None:
    check_stopped_job_saves(launcher, make_job_spec)
