"""What a Slurm job does when it loses its machine; for one that is told to stop see `test_slurm.py`."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import TYPE_CHECKING

from tests.conftest import unchanged_process
from tests.sweep.conftest import run, until
from tests.sweep.launcher.local_slurm import launcher, process_of, weights
from tests.sweep.launcher.shared import next_end

from assay.record.run_record import RunRecord
from assay.sweep.launcher.serial import SerialLauncher

if TYPE_CHECKING:
    import pytest
    from tests.sweep.conftest import MakeJobSpec

    from assay.sweep.launcher.slurm import SlurmLauncher

__all__ = ["launcher"]


def test_a_job_that_loses_its_machine_goes_on_at_the_next(
    launcher: SlurmLauncher, make_job_spec: MakeJobSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run it is compared with is one that nobody stops, in this process."""
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
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))  # for the job's own callback
    with unchanged_process():
        ended = run(SerialLauncher(), whole)[1]
    assert (ended.status, ended.metrics) == ("finished", record.metrics)
    assert end.metrics == record.metrics
    assert not list(launcher._folder.glob("*.outcome")), "what was told is not told again"
    assert weights(job_spec.run_dir) == weights(whole.run_dir)
    ours, theirs = (Path(one.run_dir, "metrics.csv").read_bytes() for one in (job_spec, whole))
    assert ours == theirs
