"""The end of a sweep, of jobs whose scores are given."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from assay.analysis.jobs import Job
from assay.analysis.objective import Objective
from assay.figure.figure import Bars
from assay.record.journal import JobRecord
from assay.record.outcome import Outcome
from assay.report.read_sweep import Contents, ranked
from assay.report.sweep_figures import parameter_figures
from assay.sweep.summary import BEST, IMPORTANCE, SweepResult, importance_of, say_results, write_results
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


def test_what_is_typed_next_is_short_and_its_whole_is_in_a_comment(
    result: SweepResult, capsys: pytest.CaptureFixture[str]
) -> None:
    shared = ("model=mlp", "notes='" + 20 * "words " + "\noptimizer: {lr: 7}'")
    jobs = tuple(replace(job, overrides=(*shared, *job.overrides[:1])) for job in result.jobs[::3])
    result = replace(result, jobs=jobs, total=len(jobs))
    write_results(result)
    whole = (result.directory / BEST).read_text(encoding="utf-8")
    config = [line for line in whole.splitlines() if not line.startswith("#")]
    assert config == ["optimizer: {lr: 0.1}"], "a line break of the command does not end its comment"
    say_results(Console(width=400), result)
    line = capsys.readouterr().out.splitlines()[-1].strip()
    assert line.startswith("assay train -m optimizer.lr=0.1 seed=1,2,3 …  ")
    assert len(line) < 100
    say_results(
        Console(width=400),
        replace(result, jobs=tuple(replace(job, overrides=job.overrides[2:]) for job in jobs)),
    )
    assert capsys.readouterr().out.endswith(" assay train -m optimizer.lr=0.1 seed=1,2,3\n")


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


def test_importance_is_the_same_on_the_page(tmp_path: Path) -> None:
    jobs = []
    for number in range(30):
        lr, wide = (number * 7 % 30) / 30, number % 2
        outcome = Outcome("finished", metrics={"val/loss": (lr - 0.4) ** 2 + 0.01 * wide})
        overrides = (f"optimizer.lr={lr}", f"model={'wide' if wide else 'mlp'}", f"seed={number % 3}")
        jobs.append(JobRecord(number, str(number), overrides, status="finished", outcome=outcome))
    result = SweepResult(tmp_path, tuple(jobs), (LOSS,), len(jobs))
    shares = importance_of(result)
    assert shares[0][0] == "optimizer.lr"
    write_results(result, shares=shares)
    assert (
        (tmp_path / IMPORTANCE).read_text().startswith(f"parameter,importance\noptimizer.lr,{shares[0][1]}")
    )
    page = [
        Job(
            str(job.number),
            {key: value for key, _, value in (word.partition("=") for word in job.overrides[:2])},
            "",
            "finished",
            job.outcome,
        )
        for job in jobs
    ]
    contents = Contents("", "", tuple(page), (LOSS,))
    figures, _ = parameter_figures(contents, ranked(contents))
    (bars,) = next(figure for figure in figures if figure.name == "importance").marks
    assert isinstance(bars, Bars)
    assert list(zip(bars.labels, bars.values, strict=True)) == shares


@pytest.mark.parametrize("number", [1, 2])
def test_what_is_next_names_runs_that_there_are(
    tmp_path: Path, number: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """Jobs without the score that was asked for: none of them is the best."""
    jobs = tuple(
        JobRecord(place, str(place), (), status="finished", outcome=Outcome("finished"))
        for place in range(number)
    )
    say_results(Console(width=200), SweepResult(tmp_path, jobs, (LOSS,), number))
    said = capsys.readouterr().out
    assert f"assay report {tmp_path}" in said
    assert (f"assay diff {tmp_path}/0 {tmp_path}/1" in said) == (number == 2)
