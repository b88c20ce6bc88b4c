"""Exit codes of sweeps."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from assay.analysis.objective import Objective
from assay.record.journal import JobRecord
from assay.sweep.summary import SweepResult

if TYPE_CHECKING:
    from assay.record.outcome import Status


@pytest.mark.parametrize(
    ("statuses", "total", "stopped", "code"),
    [
        (["finished", "pruned"], 2, 0, 0),
        (["finished"], 2, 0, 1),  # one has never begun
        (["finished", "failed"], 2, 0, 1),
        (["finished", "interrupted"], 2, 130, 130),
        (["finished", "failed"], 3, 143, 143),
        ([], 0, 0, 0),
    ],
)
def test_exit_code(statuses: list[Status], total: int, stopped: int, code: int) -> None:
    jobs = tuple(JobRecord(number, str(number), (), status=status) for number, status in enumerate(statuses))
    aims = (Objective("val/loss", "minimize"),)
    result = SweepResult(Path("sweep"), jobs, aims, total, stopped, {1: Path("elsewhere")})
    assert result.exit_code == code
    assert [result.run_dir(job) for job in jobs] == [Path("sweep/0"), Path("elsewhere")][: len(jobs)]
