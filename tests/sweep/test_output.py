"""A sweep in a terminal, its tables against pandas, and its last lines."""

from __future__ import annotations

import io
import math
import os
from dataclasses import replace
from typing import TYPE_CHECKING

import pandas as pd
import pytest
from scipy import stats  # type: ignore[import-untyped]  # scipy has no types
from tests.making_runs import make_run

from assay.record.run_record import Outcome
from assay.terminal import Console
from assay_analysis.comparison import results_csv
from assay_analysis.journal import JobRecord
from assay_analysis.objective import Objective
from assay_sweep.summary import (
    BEST,
    GROUPS,
    SweepProgress,
    SweepResult,
    ignore_closed_output,
    last_progress,
    next_commands,
    print_results,
    write_results,
)

if TYPE_CHECKING:
    from pathlib import Path


AIM = Objective("val/accuracy", "maximize")


def job(number: int, *overrides: str) -> JobRecord:
    return JobRecord(number, f"fingerprint {number}", overrides)


def lines(*ended: tuple[JobRecord, Outcome, bool], encoding: str = "utf-8") -> list[str]:
    """What stays in a terminal of these ends."""
    file = io.TextIOWrapper(io.BytesIO(), encoding=encoding, write_through=True)
    with SweepProgress(Console(file=file, width=200), AIM, 2, fixed=["data=wine"]) as progress:
        for job_record, outcome, again in ended:
            progress.show_end(job_record, outcome, again=again)
    return file.buffer.getvalue().decode(encoding).splitlines()


def test_each_end_is_one_line_with_what_is_the_jobs_own() -> None:
    finished = Outcome("finished", metrics={"val/accuracy": 0.91}, seconds=2.0)
    failed = Outcome("failed", "out_of_memory", "CUDA out of memory\nmore")
    pruned, stopped = Outcome("pruned", reason="below the median"), Outcome("interrupted")
    found = lines(
        (job(0, "data=wine", "seed=1"), finished, False),
        (job(1, "data=wine", "seed=2"), failed, True),
        (job(2, "data=wine", "seed=3"), pruned, False),
        (job(3, "data=wine", "seed=4"), stopped, False),
    )
    assert [line.split()[:3] for line in found] == [
        [mark, str(number), f"seed={number + 1}"] for number, mark in enumerate("✓✗✂⏸")
    ]
    assert "val/accuracy 91" in found[0]
    assert found[1].endswith("out of memory: CUDA out of memory  retrying from its last checkpoint")
    assert "below the median" in found[2]
    assert "interrupted" in found[3]


def test_how_far_a_run_is_is_read_from_the_end_of_its_metrics(tmp_path: Path) -> None:
    rows = [f"{epoch},{epoch * 10},{'' if epoch % 2 else epoch / 1000}" for epoch in range(900)]
    (tmp_path / "metrics.csv").write_text("\n".join(["epoch,step,val/accuracy", *rows, "900,9000,0.8"]))
    assert last_progress(tmp_path, "val/accuracy", 1000).startswith("epoch 901/1000  val/accuracy 80")
    assert last_progress(tmp_path, "val/other") == "epoch 901"


def test_a_reader_that_has_gone_ends_no_sweep() -> None:
    reading, writing = os.pipe()
    file = os.fdopen(writing, "w")
    console = Console(file=file, width=80)
    os.close(reading)
    with ignore_closed_output(console):
        console.print("x" * 100)
    with ignore_closed_output(console):
        console.print("y")
    file.close()


LOSS = Objective("val/loss", "minimize")
FOLDS = {"0.1": (0.2, 0.9, 0.7), "0.01": (0.5, 0.6, 0.5)}
"""The first learning rate has the best single fold, the second one the better mean."""


def swept(folder: Path, jobs: list[JobRecord]) -> SweepResult:
    """The sweep of these jobs, with their run directories."""
    for job in jobs:
        outcome = job.outcome or Outcome("interrupted")
        typed = dict(word.split("=") for word in job.overrides)
        fields = {name: getattr(outcome, name) for name in ("status", "cause", "metrics", "warnings")}
        fields["fold"] = int(typed.pop("fold")) if "fold" in typed else None
        words = (f"{key}={text}" for key, text in typed.items())
        config = {"fold": fields["fold"]}
        make_run(folder / str(job.number), *words, config=config, **fields)
    return SweepResult(folder, tuple(jobs), (LOSS,), len(jobs))


@pytest.fixture
def result(tmp_path: Path) -> SweepResult:
    jobs: list[JobRecord] = []
    for lr, losses in FOLDS.items():
        for fold, loss in enumerate(losses):
            outcome = Outcome("finished", metrics={"val/loss": loss})
            overrides = (f"optimizer.lr={lr}", f"fold={fold}")
            number = len(jobs)
            jobs.append(JobRecord(number, str(number), overrides, status="finished", outcome=outcome))
    return swept(tmp_path, jobs)


def test_the_best_config_is_of_the_best_mean_over_folds(result: SweepResult) -> None:
    write_results(result)
    best = (result.directory / BEST).read_text(encoding="utf-8")
    assert "lr: 0.01\n" in best
    assert "job 3\n" in best, "of its folds the best, the first one of two"


def test_what_is_typed_next_and_the_command_of_the_best_in_a_comment(
    result: SweepResult, capsys: pytest.CaptureFixture[str]
) -> None:
    shared = ("model=mlp", "notes='" + 20 * "words " + "\noptimizer: {lr: 7}'")
    jobs = tuple(replace(job, overrides=(*shared, *job.overrides[:1])) for job in result.jobs[::3])
    result = replace(result, jobs=jobs, total=len(jobs))
    write_results(result)
    whole = (result.directory / BEST).read_text(encoding="utf-8")
    config = [line for line in whole.splitlines() if not line.startswith("#")]
    assert "  lr: 0.1" in config
    assert "optimizer: {lr: 7}" not in config, "a line break of the command does not end its comment"
    print_results(
        Console(width=400),
        replace(result, jobs=tuple(replace(job, overrides=job.overrides[2:]) for job in jobs)),
    )
    assert capsys.readouterr().out.endswith(" assay train -m optimizer.lr=0.1 seed=1,2,3\n")


@pytest.mark.parametrize("kept", [0, 1, 2])
def test_what_failed_can_be_run_again_whatever_else_finished(tmp_path: Path, kept: int) -> None:
    ends = [Outcome("finished", metrics={"val/loss": 1.0})] * kept + [Outcome("failed", "timed_out", "late")]
    jobs = [
        JobRecord(number, str(number), (f"optimizer.lr={number}",), status=outcome.status, outcome=outcome)
        for number, outcome in enumerate(ends)
    ]
    told = next_commands(swept(tmp_path, jobs))
    assert told[0] == f"assay report {tmp_path}"
    assert told[-1] == f"assay resume {tmp_path} --failed"
    assert len(told) == 2 + (kept > 0)


def test_where_all_were_pruned_nothing_can_be_run_again(tmp_path: Path) -> None:
    outcome = Outcome("pruned", reason="pruned at epoch 1")
    job = JobRecord(0, "0", ("optimizer.lr=1",), status="pruned", outcome=outcome)
    assert next_commands(swept(tmp_path, [job])) == [f"assay report {tmp_path}"]


def test_a_model_of_no_use_is_told_of_the_jobs_that_have_finished(
    result: SweepResult, capsys: pytest.CaptureFixture[str]
) -> None:
    jobs = [
        replace(job, outcome=replace(job.outcome, warnings=[f"warned of {job.number} [b]"]))
        for job in result.jobs
        if job.outcome is not None
    ]
    jobs[0] = replace(jobs[0], status="failed")
    print_results(Console(width=200), replace(result, jobs=tuple(jobs)))
    said = capsys.readouterr().out
    told = [line for line in said.splitlines() if line.startswith("warning job")]
    assert told == [f"warning job {number}: warned of {number} [b]" for number in (1, 2, 3, 4)]
    assert "… and 1 more warnings, see the report" in said


SCORES = {("0.1", 1): 0.5, ("0.1", 2): 0.7, ("0.01", 1): 0.4, ("0.01", 2): 0.45, ("1.0", 1): 0.3}


def ended_job(number: int, lr: str, seed: int, loss: float | None, status: str = "finished") -> JobRecord:
    metrics = {} if loss is None else {"val/loss": loss, "val/accuracy": 1 - loss}
    outcome = Outcome(status, "exception" if status == "failed" else "", metrics=metrics)  # type: ignore[arg-type]  # a status
    overrides = ("data=digits", f"optimizer.lr={lr}", f"seed={seed}")
    return JobRecord(number, f"{lr}/{seed}", overrides, "", seed, status, 1, outcome=outcome)  # type: ignore[arg-type]  # a status


def jobs() -> list[JobRecord]:
    done = [ended_job(number, lr, seed, loss) for number, ((lr, seed), loss) in enumerate(SCORES.items())]
    return [*done, ended_job(5, "1.0", 2, None, "failed")]


def test_the_table_reads_back_as_it_was() -> None:
    table = pd.read_csv(io.StringIO(results_csv(jobs())))
    first = ["job", "optimizer.lr", "seed", "status", "cause"]
    assert list(table.columns) == [*first, "val/loss", "val/accuracy"]
    assert table["val/loss"].tolist()[:5] == list(SCORES.values())
    last = table.to_dict("records")[5]
    assert (last["status"], last["cause"]) == ("failed", "exception")
    assert math.isnan(last["val/loss"])


def groups_of(folder: Path, jobs: list[JobRecord]) -> pd.DataFrame:
    write_results(swept(folder, jobs))
    return pd.read_csv(folder / GROUPS)


def test_groups_are_what_pandas_makes_of_the_table(tmp_path: Path) -> None:
    """Also of a score that is no objective."""
    table = pd.read_csv(io.StringIO(results_csv(jobs())))
    found = groups_of(tmp_path, jobs()).set_index("optimizer.lr")
    for score in ("val/loss", "val/accuracy"):
        expected = table.groupby("optimizer.lr")[score].agg(["count", "mean", "std"]).loc[found.index]
        assert found["finished"].tolist() == expected["count"].tolist()
        for end, column in ((" n", "count"), ("", "mean"), (" std", "std")):
            written = found[f"{score}{end}"].tolist()
            assert written == pytest.approx(expected[column].tolist(), nan_ok=True)
    assert found["repetitions"].tolist() == [2, 2, 2]
    assert found.index.tolist() == [0.01, 0.1, 1.0], "the last one has a better mean, of one seed alone"


def test_the_best_job_is_of_a_whole_group(tmp_path: Path) -> None:
    best = swept(tmp_path / "all", jobs()).best
    assert best is not None
    assert best.number == 2
    assert swept(tmp_path / "failed", jobs()[5:]).best is None


def test_losses_that_cannot_be_compared_name_no_best_job(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    swept_jobs = []
    for number, (loss, value) in enumerate((("ce", 0.2), ("focal", 0.1))):
        outcome = Outcome("finished", metrics={"val/loss": value})
        swept_jobs.append(
            JobRecord(number, str(number), (f"loss={loss}",), status="finished", outcome=outcome)
        )
    result = swept(tmp_path, swept_jobs)
    write_results(result)
    print_results(Console(width=200), result)
    assert result.best is None
    assert not (tmp_path / BEST).exists()
    printed = capsys.readouterr().out
    assert "val/loss is not the same quantity in all rows: loss=ce, focal" in printed
    assert f"assay compare {tmp_path}\n" in printed


def test_folds_repeat_a_configuration_and_the_interval_is_students(tmp_path: Path) -> None:
    scores = [("0.1", 0, 0.5), ("0.1", 1, 0.7), ("0.1", 2, 0.9), ("1.0", 0, 0.4)]
    folds = [ended_job(number, lr, 0, loss) for number, (lr, _, loss) in enumerate(scores)]
    folds = [
        replace(job, fingerprint=f"{lr} {fold}", overrides=(f"optimizer.lr={lr}", f"fold={fold}"))
        for job, (lr, fold, _) in zip(folds, scores, strict=True)
    ]
    found = groups_of(tmp_path, folds).sort_values("optimizer.lr")
    assert found["optimizer.lr"].tolist() == [0.1, 1.0]
    low, high = stats.t.interval(0.95, 2, loc=0.7, scale=stats.sem([0.5, 0.7, 0.9]))
    assert found[["val/loss low", "val/loss high"]].iloc[0].tolist() == pytest.approx([low, high])
    assert found[["val/loss low", "val/loss high"]].iloc[1].isna().all()
