"""The tables of a sweep, against pandas."""

from __future__ import annotations

import io
import math
from typing import TYPE_CHECKING

import pandas as pd
import pytest
from scipy import stats  # type: ignore[import-untyped]  # scipy has no types

from assay.analysis.jobs import best_job, groups, groups_csv, rank, results_csv
from assay.analysis.objective import Objective
from assay.record.journal import JobRecord
from assay.record.outcome import Outcome
from assay.sweep.summary import write_tables

if TYPE_CHECKING:
    from pathlib import Path


LOSS = Objective("val/loss", "minimize")
ACCURACY = Objective("val/accuracy", "maximize")
SCORES = {("0.1", 1): 0.5, ("0.1", 2): 0.7, ("0.01", 1): 0.4, ("0.01", 2): 0.45, ("1.0", 1): 0.3}


def job(number: int, lr: str, seed: int, loss: float | None, status: str = "finished") -> JobRecord:
    metrics = {} if loss is None else {"val/loss": loss, "val/accuracy": 1 - loss}
    outcome = Outcome(status, "exception" if status == "failed" else "", metrics=metrics)  # type: ignore[arg-type]  # a status
    overrides = ("data=digits", f"optimizer.lr={lr}", f"seed={seed}")
    return JobRecord(number, f"{lr}/{seed}", overrides, "", seed, status, 1, outcome=outcome)  # type: ignore[arg-type]  # a status


def jobs() -> list[JobRecord]:
    done = [job(number, lr, seed, loss) for number, ((lr, seed), loss) in enumerate(SCORES.items())]
    return [*done, job(5, "1.0", 2, None, "failed")]


def test_the_table_reads_back_as_it_was() -> None:
    table = pd.read_csv(io.StringIO(results_csv(jobs())))
    assert list(table.columns) == [
        "job",
        "optimizer.lr",
        "seed",
        "status",
        "cause",
        "val/accuracy",
        "val/loss",
    ]
    assert table["val/loss"].tolist()[:5] == list(SCORES.values())
    last = table.to_dict("records")[5]
    assert (last["status"], last["cause"]) == ("failed", "exception")
    assert math.isnan(last["val/loss"])


def test_groups_are_what_pandas_makes_of_the_table() -> None:
    table = pd.read_csv(io.StringIO(results_csv(jobs())))
    expected = table.groupby("optimizer.lr", sort=False)["val/loss"].agg(["count", "mean", "std"])
    found = pd.read_csv(io.StringIO(groups_csv(jobs(), [LOSS]))).set_index("optimizer.lr")
    assert found["finished"].tolist() == expected["count"].tolist()
    assert found["of"].tolist() == [2, 2, 2]
    assert found["val/loss mean"].tolist() == pytest.approx(expected["mean"].tolist())
    assert found["val/loss n"].tolist() == expected["count"].tolist()
    others = table.groupby("optimizer.lr", sort=False)["val/accuracy"].agg(["count", "mean", "std"])
    for name, what in (("n", "count"), ("mean", "mean"), ("std", "std")):
        written = found[f"val/accuracy {name}"].tolist()
        assert written == pytest.approx(others[what].tolist(), nan_ok=True), (
            "no objective, and there all the same"
        )
    assert found["val/loss std"].tolist() == pytest.approx(expected["std"].tolist(), nan_ok=True)


def test_whole_groups_come_first_and_the_best_of_them_is_the_best() -> None:
    order = [group.values["optimizer.lr"] for group in rank(groups(jobs(), [LOSS]), LOSS)]
    assert order == ["0.01", "0.1", "1.0"], "the last one has a better mean, of one seed alone"
    best = best_job(jobs(), LOSS)
    assert best is not None
    assert best.number == 2
    assert best_job(jobs()[5:], LOSS) is None


def test_folds_repeat_a_configuration_and_the_interval_is_students() -> None:
    folds = [
        JobRecord(
            number,
            str(number),
            (f"optimizer.lr={lr}", f"fold={fold}"),
            status="finished",
            outcome=Outcome("finished", metrics={"val/loss": loss}),
        )
        for number, (lr, fold, loss) in enumerate(
            [("0.1", 0, 0.5), ("0.1", 1, 0.7), ("0.1", 2, 0.9), ("1.0", 0, 0.4)]
        )
    ]
    found = pd.read_csv(io.StringIO(groups_csv(folds, [LOSS])))
    assert found["optimizer.lr"].tolist() == [0.1, 1.0]
    low, high = stats.t.interval(0.95, 2, loc=0.7, scale=stats.sem([0.5, 0.7, 0.9]))
    assert found[["val/loss low", "val/loss high"]].iloc[0].tolist() == pytest.approx([low, high])
    assert found[["val/loss low", "val/loss high"]].iloc[1].isna().all()


def test_both_tables_are_written_and_the_second_only_for_seeds(tmp_path: Path) -> None:
    write_tables(tmp_path, jobs(), [LOSS, ACCURACY])
    assert "val/accuracy mean" in (tmp_path / "groups.csv").read_text()
    write_tables(tmp_path, jobs()[::2], [LOSS])
    assert not (tmp_path / "groups.csv").exists()
