"""submitit's local executor, in place of Slurm."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest

from assay.record.run_record import RunRecord
from assay.sweep.launcher.slurm import SlurmLauncher

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def launcher(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[SlurmLauncher]:
    """With what a test gives as its parameter: lines for the shell before each job."""
    setup = getattr(request, "param", None)
    launcher = SlurmLauncher(tmp_path / "sweep", cluster="local", setup=setup)
    yield launcher
    launcher.close()
    SlurmLauncher(tmp_path / "sweep", cluster="local").close()  # what a test has left


def process_of(launcher: SlurmLauncher, number: int = 0) -> psutil.Process:
    """The process that submitit runs a job in."""
    (process,) = psutil.Process(int(launcher._running[number].job_id)).children()
    return process


def weights(run_dir: str | Path) -> str:
    return RunRecord.load(Path(run_dir)).weights_sha256
