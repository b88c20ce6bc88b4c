"""The document of a sweep says of each job what its outcome says, and names the best."""

from __future__ import annotations

from typing import TYPE_CHECKING

from assay.analysis.objective import Objective
from assay.cli.documents import Sweep
from assay.record.journal import JobRecord
from assay.record.outcome import Outcome
from assay.sweep.summary import SweepResult

if TYPE_CHECKING:
    from pathlib import Path


def test_a_sweep(tmp_path: Path) -> None:
    good = Outcome("finished", metrics={"val/loss": 0.5}, seconds=2.0)
    bad = Outcome("failed", "out_of_memory", "it was too large")
    jobs = (
        JobRecord(0, "a", ("seed=1",), seed=1, status="failed", attempts=2, outcome=bad),
        JobRecord(1, "b", ("seed=2",), seed=2, status="finished", attempts=1, outcome=good),
        JobRecord(2, "c", ("seed=3",), seed=3),
    )
    result = SweepResult(
        tmp_path, jobs, (Objective("val/loss", "minimize"),), 4, run_dirs={1: tmp_path / "x"}
    )
    found = Sweep.of(result)
    assert (found.total, found.best, found.objectives) == (4, 1, {"val/loss": "minimize"})
    failed, finished, waiting = found.jobs
    assert (failed.status, failed.cause, failed.reason, failed.attempts) == (
        "failed",
        "out_of_memory",
        "it was too large",
        2,
    )
    assert (finished.metrics, finished.seconds, finished.run_dir) == ({"val/loss": 0.5}, 2.0, tmp_path / "x")
    assert (waiting.status, waiting.metrics, waiting.run_dir) == ("waiting", {}, tmp_path / "2")
