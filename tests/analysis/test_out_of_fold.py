"""What runs said of their folds, put together: against scikit-learn's `cross_val_predict`."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_iris  # type: ignore[import-untyped]  # scikit-learn ships no types
from sklearn.linear_model import LogisticRegression  # type: ignore[import-untyped]  # as above
from sklearn.metrics import accuracy_score  # type: ignore[import-untyped]  # as above
from sklearn.model_selection import StratifiedKFold, cross_val_predict  # type: ignore[import-untyped]  # as above

from assay.task.predictions import StoredPredictions
from assay_analysis import predictions_file
from assay_analysis.comparison import make_row
from assay_analysis.out_of_fold import gather_folds, write
from assay_analysis.run import Run

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


def run(folder: Path, fold: int, predictions: StoredPredictions, name: str = "") -> Run:
    run_dir = folder / (name or str(fold))
    run_dir.mkdir(parents=True)
    predictions_file.write(run_dir / predictions_file.FILE, predictions)
    (run_dir / "config.yaml").write_text(f"data: {{split: {{folds: {FOLDS}}}}}\n")
    return Run(run_dir, "finished", fingerprint=name or str(fold), fold=fold)


def iris(fold: int) -> StoredPredictions:
    rows = CUTS[fold]
    outputs = PROBABILITIES[rows].astype(np.float32)
    return StoredPredictions(
        "multiclass", "probabilities", tuple(map(str, rows)), outputs, IRIS[1][rows].astype(np.int64), NAMES
    )


def test_every_sample_once_and_the_score_over_all(tmp_path: Path) -> None:
    [found] = gather_folds([make_row([run(tmp_path, fold, iris(fold)) for fold in (2, 0, 1)], {}, ())])
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


def test_classes_of_one_configuration_and_numbers_of_another_are_one_table(tmp_path: Path) -> None:
    targets = np.array([[1.5], [2.0]], np.float32)
    numbers = StoredPredictions("regression", "values", ("a", "b"), targets + 1, targets, ("size",))
    rows = [
        make_row([run(tmp_path / "classes", 0, iris(0))], {"data": "iris"}, ()),
        make_row([run(tmp_path / "numbers", 0, numbers)], {"data": "sizes"}, ()),
    ]
    write(tmp_path / "all.parquet", gather_folds(rows))
    table = pd.read_parquet(tmp_path / "all.parquet").set_index("key")
    assert table.target[["a", "b"]].tolist() == ["1.5", "2.0"]
    assert set(table.target[table.data == "iris"]) == set(NAMES)
    assert table["probability setosa"].dtype.kind == "f"


def test_what_is_missing_is_said(tmp_path: Path) -> None:
    def problems(*runs: Run) -> str:
        [found] = gather_folds([make_row(runs, {}, ())])
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
    (other.path / predictions_file.FILE).unlink()
    assert "run other, fold 1: " in problems(whole[0], other, whole[2])
    assert "fold 1 of 3 is missing" in problems(whole[0], other, whole[2])
