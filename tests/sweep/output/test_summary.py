"""The end of a sweep, of jobs whose scores are given."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from assay.record.journal import JobRecord
from assay.record.objective import Objective
from assay.record.outcome import Outcome
from assay.sweep.output.summary import BEST, say_results, write_results
from assay.sweep.result import SweepResult
from assay.terminal import Console

if TYPE_CHECKING:
    from pathlib import Path

LOSS = Objective("val/loss", "minimize")
FOLDS = {"0.1": (0.2, 0.9, 0.7), "0.01": (0.5, 0.6, 0.5)}
"""The first learning rate has the best single fold, the second one the better mean."""


@pytest.fixture
def result(tmp_path: Path) -> SweepResult:
    jobs: list[JobRecord] = []
    for lr, losses in FOLDS.items():
        for fold, loss in enumerate(losses):
            number = len(jobs)
            (tmp_path / str(number)).mkdir()
            (tmp_path / str(number) / "config.yaml").write_text(f"optimizer: {{lr: {lr}}}\n")
            outcome = Outcome("finished", metrics={"val/loss": loss})
            overrides = (f"optimizer.lr={lr}", f"fold={fold}")
            jobs.append(JobRecord(number, str(number), overrides, status="finished", outcome=outcome))
    return SweepResult(tmp_path, tuple(jobs), (LOSS,), len(jobs))


def test_the_best_config_is_of_the_best_mean_over_folds(result: SweepResult) -> None:
    write_results(result)
    best = (result.directory / BEST).read_text(encoding="utf-8")
    assert best.endswith("optimizer: {lr: 0.01}\n")
    assert "job 3\n" in best, "of its folds the best, the first one of two"


def test_a_model_of_no_use_is_told_of_the_jobs_that_have_finished(
    result: SweepResult, capsys: pytest.CaptureFixture[str]
) -> None:
    jobs = [
        replace(job, outcome=replace(job.outcome, warnings=[f"warned of {job.number} [b]"]))
        for job in result.jobs
        if job.outcome is not None
    ]
    jobs[0] = replace(jobs[0], status="failed")
    say_results(Console(width=200), replace(result, jobs=tuple(jobs)))
    said = capsys.readouterr().out
    told = [line for line in said.splitlines() if line.startswith("warning job")]
    assert told == [f"warning job {number}: warned of {number} [b]" for number in (1, 2, 3, 4)]
    assert "… and 1 more warnings, see the report" in said
