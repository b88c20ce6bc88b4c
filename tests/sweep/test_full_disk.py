"""A disk that gets full while a sweep runs: one line, nothing is burnt, and with room again it goes on."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.mounting import mounted
from tests.sweep.conftest import PROJECT, TINY
from tests.sweep.launcher.shared import check_same_sweep

from assay.errors import AssayError
from assay_analysis.journal import Journal
from assay_sweep.session import resume_sweep, start_sweep

if TYPE_CHECKING:
    from collections.abc import Iterator

    from assay_sweep.worker.fork_client import ForkServer

JOBS = (*TINY, "seed=range(3)", "hydra.launcher.jobs_at_once=2", "hydra.sweep.dir=sweep")
FILLER = Path("filler")


@pytest.fixture
def small_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A file system of 32 MiB, and the current directory."""
    with mounted(disk := tmp_path / "disk", "size=32m") as able:
        if not able:
            pytest.skip("only root may mount a file system")
        shutil.copytree(PROJECT, disk, dirs_exist_ok=True)
        monkeypatch.chdir(disk)
        yield disk
        os.chdir(tmp_path)


def states() -> list[str]:
    jobs = Journal.open(Path("sweep"), repair=False).jobs
    return [job.status for _, job in sorted(jobs.items())]


def test_a_sweep_stops_and_goes_on_when_there_is_room(
    small_disk: Path, fork_server: ForkServer, capfd: pytest.CaptureFixture[str]
) -> None:
    start_sweep([*JOBS[:-1], "hydra.sweep.dir=whole"])
    free = shutil.disk_usage(".").free
    with FILLER.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, free - (40 << 10))
    with pytest.raises(AssayError) as caught:
        start_sweep(JOBS)
    text = str(caught.value)
    assert "cannot write" in text
    assert "No space left on device" in text
    assert "\n  → assay resume sweep, once it can" in text
    assert text.count("\n") == 1
    assert "Traceback" not in "".join(capfd.readouterr())
    assert "failed" not in states()
    with pytest.raises(AssayError, match="No space left on device"):  # and again: nothing is used up
        resume_sweep(Path("sweep"))
    assert "failed" not in states()
    FILLER.unlink()
    result = resume_sweep(Path("sweep"))
    assert [job.status for job in result.jobs] == ["finished"] * 3
    assert all(not job.failures for job in result.jobs)
    check_same_sweep(Path("sweep"), Path("whole"), 3)
