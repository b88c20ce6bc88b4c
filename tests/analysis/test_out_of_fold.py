"""What runs said of their folds, put together: against scikit-learn's `cross_val_predict`."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_diabetes, load_iris  # type: ignore[import-untyped]  # scikit-learn ships no types
from sklearn.linear_model import LogisticRegression, Ridge  # type: ignore[import-untyped]  # as above
from sklearn.metrics import accuracy_score, r2_score  # type: ignore[import-untyped]  # as above
from sklearn.model_selection import StratifiedKFold, cross_val_predict  # type: ignore[import-untyped]  # as above
from tests.task.grades import made

from assay.analysis.out_of_fold import FoldRun, fold_runs, gathered, mean_scores, write
from assay.record import predictions_file
from assay.record.journal import JobRecord
from assay.record.outcome import Outcome
from assay.task.prediction.predictions import Predictions
from assay.task.task_of import remember_task

if TYPE_CHECKING:
    from pathlib import Path

FOLDS = 3
IRIS = load_iris(return_X_y=True)
CUTS = [test for _, test in StratifiedKFold(FOLDS, shuffle=True, random_state=0).split(*IRIS)]
PROBABILITIES = cross_val_predict(
    LogisticRegression(max_iter=500),
    *IRIS,
    method="predict_proba",
    cv=StratifiedKFold(FOLDS, shuffle=True, random_state=0),
)
NAMES = ("setosa", "versicolor", "virginica")


def run(
    folder: Path, fold: int, predictions: Predictions, name: str = "", seed: str = "0", **values: str
) -> FoldRun:
    run_dir = folder / f"{fold}-{seed}-{name}"
    run_dir.mkdir(parents=True)
    predictions_file.write(run_dir / predictions_file.FILE, predictions)
    (run_dir / "config.yaml").write_text(f"data: {{split: {{folds: {FOLDS}}}}}\n")
    return FoldRun(name or str(fold), values, seed, fold, run_dir)


def iris(fold: int) -> Predictions:
    rows = CUTS[fold]
    outputs = PROBABILITIES[rows].astype(np.float32)
    return Predictions(
        "multiclass", "probabilities", tuple(map(str, rows)), outputs, IRIS[1][rows].astype(np.int64), NAMES
    )


def test_every_sample_once_and_the_score_over_all(tmp_path: Path) -> None:
    [found] = gathered([run(tmp_path, fold, iris(fold)) for fold in (2, 0, 1)])
    assert not found.problems
    assert sorted(map(int, found.predictions.keys)) == list(range(150))
    accuracy = next(score for score in found.scores() if score.name == "accuracy")
    assert accuracy.value == pytest.approx(accuracy_score(IRIS[1], PROBABILITIES.argmax(1)))
    write(tmp_path / "all.parquet", [found])
    table = (
        pd.read_parquet(tmp_path / "all.parquet").assign(key=lambda one: one.key.astype(int)).set_index("key")
    )
    table = table.sort_index()
    assert table.target.tolist() == [NAMES[label] for label in IRIS[1]]
    assert table.prediction.tolist() == [NAMES[label] for label in PROBABILITIES.argmax(1)]
    np.testing.assert_allclose(table["probability virginica"], PROBABILITIES[:, 2], rtol=1e-6)
    for fold, rows in enumerate(CUTS):
        assert (table.loc[rows, "fold"] == fold).all()
        assert (table.loc[rows, "run"] == str(fold)).all()
    write(tmp_path / "all.parquet", [])
    assert not (tmp_path / "all.parquet").exists()


def test_a_regression(tmp_path: Path) -> None:
    inputs, targets = load_diabetes(return_X_y=True)
    said = cross_val_predict(Ridge(), inputs, targets, cv=FOLDS)
    parts = np.array_split(np.arange(len(targets)), FOLDS)
    runs = [
        run(
            tmp_path,
            fold,
            Predictions(
                *("regression", "values", tuple(map(str, rows)), said[rows, None].astype(np.float32)),
                *(targets[rows, None].astype(np.float32), ("progression",)),
            ),
        )
        for fold, rows in enumerate(parts)
    ]
    [found] = gathered(runs)
    scores = {score.name.split()[0]: score.value for score in found.scores()}
    assert scores["r2"] == pytest.approx(r2_score(targets, said), abs=1e-4)
    assert found.to_frame().target.tolist() == pytest.approx(targets.tolist())


def test_configurations_and_seeds_are_apart(tmp_path: Path) -> None:
    runs = [
        run(tmp_path / lr, fold, iris(fold), name=f"{lr}-{seed}-{fold}", seed=seed, lr=lr)
        for lr in ("0.1", "0.2")
        for seed in ("0", "1")
        for fold in range(FOLDS)
    ]
    found = gathered(runs)
    assert [(one.values, one.seed) for one in found] == [
        ({"lr": lr}, seed) for lr in ("0.1", "0.2") for seed in ("0", "1")
    ]
    assert mean_scores(found[:2])["accuracy"] == pytest.approx(
        accuracy_score(IRIS[1], PROBABILITIES.argmax(1))
    )


def test_what_is_missing_is_said(tmp_path: Path) -> None:
    def problems(*runs: FoldRun) -> str:
        [found] = gathered(runs)
        return "; ".join(found.problems)

    whole = [run(tmp_path, fold, iris(fold)) for fold in range(FOLDS)]
    assert problems(*whole[:1]) == "fold 1, 2 of 3 is missing"
    thin = replace(iris(1), num_evaluated=80)
    assert "only 50 of 80 predictions were kept" in problems(
        whole[0], run(tmp_path, 1, thin, "thin"), whole[2]
    )
    again = run(tmp_path, 1, iris(0), "again")
    assert "some samples are in several folds" in problems(whole[0], again, whole[2])
    other = run(tmp_path, 1, replace(iris(1), class_names=("a", "b", "c")), "other")
    assert "not all runs predict the same" in problems(whole[0], other, whole[2])
    (other.run_dir / predictions_file.FILE).unlink()
    assert "run other, fold 1: " in problems(whole[0], other, whole[2])
    assert "fold 1 of 3 is missing" in problems(whole[0], other, whole[2])


def test_jobs_of_a_sweep_that_tested_a_fold(tmp_path: Path) -> None:
    done: Any = {"status": "finished", "outcome": Outcome("finished")}
    jobs = [
        JobRecord(0, "a", ("lr=1", "fold=0", "data.split.folds=2"), seed=3, **done),
        JobRecord(1, "b", ("lr=1", "fold=1", "data.split.folds=2"), seed=3, status="failed"),
        JobRecord(2, "c", ("lr=2", "fold=null", "data.split.folds=2"), seed=3, **done),
    ]
    [found] = fold_runs(jobs, lambda job: tmp_path / str(job.number))
    assert (found.name, found.values, found.seed, found.fold) == ("0", {"lr": "1"}, "3", 0)


def test_a_task_that_fails_at_its_scores_costs_these_alone(tmp_path: Path) -> None:
    task = made(
        tmp_path,
        "    def scores(self, predictions): return {}['kappa']\n"
        "    def typed(self, outputs, kind, names): pass",
    )
    remember_task(task)
    parts = [replace(iris(fold), task=task.name) for fold in range(FOLDS)]
    [found] = gathered([run(tmp_path, fold, part) for fold, part in enumerate(parts)])
    assert mean_scores([found]) == {}
    first, second = found.problems
    assert "scores of task 'grades.Grades' raised KeyError: 'kappa'" in first
    assert "typed of task 'grades.Grades' returned a NoneType" in second
    write(tmp_path / "all.parquet", [found])
    frame = pd.read_parquet(tmp_path / "all.parquet")
    assert frame["output_2"].tolist() == pytest.approx(found.predictions.outputs[:, 2].tolist())
