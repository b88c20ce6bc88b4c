"""A run with several targets, from its table to predictions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_wine  # type: ignore[import-untyped]  # scikit-learn ships no types
from sklearn.linear_model import LogisticRegression, Ridge  # type: ignore[import-untyped]
from sklearn.metrics import accuracy_score, r2_score  # type: ignore[import-untyped]
from sklearn.pipeline import make_pipeline  # type: ignore[import-untyped]
from sklearn.preprocessing import StandardScaler  # type: ignore[import-untyped]

from assay.analysis.objective import format_score
from assay.errors import DataError
from assay.record import predictions_file
from assay.run.train import train
from assay.task.multitask import Multitask

if TYPE_CHECKING:
    from pathlib import Path

    from assay.run.result import RunResult

TARGETS = ["grower", "alcohol"]
SHORT = [
    *("model=mlp", "optimizer.lr=0.01", "data.batch_size=16", "trainer.max_epochs=8", "device=cpu", "seed=1"),
]


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Scikit-learn's wines with their growers by name."""
    wine = load_wine(as_frame=True)
    frame = wine.data.assign(grower=wine.target.map({0: "Abel", 1: "Berta", 2: "Carl"}))
    path: Path = tmp_path_factory.mktemp("table") / "wines of three.csv"
    frame.to_csv(path, index=False)
    return path


@pytest.fixture(scope="module")
def told(table: Path) -> list[str]:
    return ["data=table", f"data.source.path='{table}'", f"data.source.target=[{','.join(TARGETS)}]", *SHORT]


@pytest.fixture(scope="module")
def run(told: list[str], tmp_path_factory: pytest.TempPathFactory) -> RunResult:
    return train([*told, f"hydra.run.dir={tmp_path_factory.mktemp('run') / 'run'}"])


def test_mixed_targets_choose_their_task_and_beat_scikit_learn(run: RunResult, table: Path) -> None:
    """The named baselines: logistic and ridge regression, one for each target, on the same rows."""
    kept = predictions_file.read(run.run_dir / predictions_file.FILE)
    assert (kept.task, kept.class_names) == (
        "multitask",
        ("grower=Abel", "grower=Berta", "grower=Carl", "alcohol"),
    )
    frame = pd.read_csv(table)
    rows = [int(key) for key in kept.keys]
    others = frame.drop(columns=TARGETS)
    train_rows = [row for row in range(len(frame)) if row not in rows]
    fit = others.iloc[train_rows], frame.iloc[train_rows]
    grower = make_pipeline(StandardScaler(), LogisticRegression()).fit(fit[0], fit[1]["grower"])
    alcohol = make_pipeline(StandardScaler(), Ridge()).fit(fit[0], fit[1]["alcohol"])
    right = frame.iloc[rows]
    base = (
        accuracy_score(right["grower"], grower.predict(others.iloc[rows])),
        r2_score(right["alcohol"], alcohol.predict(others.iloc[rows])),
    )
    assert run.metrics["test/grower/accuracy"] >= base[0] - 1e-6
    assert run.metrics["test/alcohol/r2"] > base[1]
    assert np.allclose(right["alcohol"], kept.targets[:, 1])  # type: ignore[index]  # they are there


def test_scores_and_figures_are_those_of_each_target(run: RunResult) -> None:
    kept, task = predictions_file.read(run.run_dir / predictions_file.FILE), Multitask()
    scores = {score.name: score.value for score in task.scores(kept)}
    assert scores["grower/accuracy"] == pytest.approx(run.metrics["test/grower/accuracy"])
    assert scores["alcohol/r2"] == pytest.approx(run.metrics["test/alcohol/r2"], abs=1e-4)
    assert format_score("grower/accuracy", scores["grower/accuracy"]).endswith(" %")
    figures = task.figures(kept)
    assert "alcohol: Predicted against true" in {figure.title for figure in figures}
    assert {figure.title.partition(":")[0] for figure in figures} == set(TARGETS)
    assert len({figure.name for figure in figures}) == len(figures)
    assert np.isfinite(task.error_scores(kept)).all()
    assert task.predicted_label(kept, 0).startswith("grower ")
    classes, right = task.is_right(kept), kept.outputs[:, :3].argmax(1) == kept.targets[:, 0]  # type: ignore[index]  # they are there
    np.testing.assert_array_equal(classes, right)


def test_a_column_whose_name_would_be_taken_for_a_class(tmp_path: Path) -> None:
    from assay.data.table import Table

    frame: Any = pd.DataFrame({"a=b": ["u", "v"] * 20, "y": np.linspace(0.1, 1, 40), "x": np.arange(40) / 7})
    frame.to_csv(tmp_path / "t.csv", index=False)
    with pytest.raises(DataError, match="'a=b' holds '='"):
        Table(str(tmp_path / "t.csv"), ["a=b", "y"]).read()
