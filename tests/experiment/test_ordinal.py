"""The task of one's own in `examples/my_project`, as everything is done with it that is done with assay's."""

from __future__ import annotations

import importlib
import re
from contextlib import chdir
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression  # type: ignore[import-untyped]  # it ships no types
from sklearn.metrics import cohen_kappa_score  # type: ignore[import-untyped]  # it ships no types
from sklearn.pipeline import make_pipeline  # type: ignore[import-untyped]  # it ships no types
from sklearn.preprocessing import StandardScaler  # type: ignore[import-untyped]  # it ships no types
from tests.command import typed

from assay_analysis import predictions_file
from assay_report.page import Note
from assay_report.run_page import run_page

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.conftest import Train, Trained

PROJECT = Path(__file__).parents[2] / "examples" / "my_project"
AS_SHOWN = ("data=diabetes_grades", "optimizer.lr=0.1")
WORDS = (*AS_SHOWN, "seed=0", "trainer.max_epochs=30", "callbacks=[checkpoint,last_checkpoint]")
OFTEN = "callbacks.last_checkpoint.every_n_train_steps=5"


@pytest.fixture(autouse=True, scope="module")
def own_project() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(PROJECT))
        yield


@pytest.fixture(scope="module")
def whole(train: Train, own_project: None) -> Trained:
    return train(*WORDS, OFTEN, config_dir=PROJECT / "conf")


@pytest.fixture(scope="module")
def source(own_project: None) -> Any:
    return importlib.import_module("my_project.diabetes_grades").DiabetesGrades()


@pytest.fixture(scope="module")
def grades(source: Any) -> Any:
    """All its samples."""
    return source.read()["all"]


def told_apart(grades: Any, rows: Any, said: Any) -> dict[str, float]:
    """Scores of grades by scikit-learn and by hand."""
    right = grades.targets.numpy()[rows]
    kappa = cohen_kappa_score(right, said, weights="quadratic")
    return {"kappa": kappa, "grade_error": np.abs(right - said).mean(), "accuracy": (right == said).mean()}


def logistic_regression(grades: Any, train: Any, test: Any) -> Any:
    model = make_pipeline(StandardScaler(), LogisticRegression())
    inputs = grades.inputs.numpy()
    return model.fit(inputs[train], grades.targets.numpy()[train]).predict(inputs[test])


def test_it_scores_as_scikit_learn_counts_and_as_well_as_its_logistic_regression(
    whole: Trained, grades: Any
) -> None:
    rows = {part: np.asarray(one) for part, one in whole.datamodule.splits.rows.items()}
    kept = predictions_file.read(whole.run_dir / predictions_file.FILE)
    assert [int(key) for key in kept.keys] == rows["test"].tolist()
    ours = told_apart(grades, rows["test"], kept.outputs.argmax(1))
    for name, value in ours.items():
        assert whole.record["metrics"][f"test/{name}"] == pytest.approx(value, abs=1e-6)
    base = told_apart(grades, rows["test"], logistic_regression(grades, rows["train"], rows["test"]))
    print(ours, base)
    assert ours["kappa"] > base["kappa"] - 0.02


def test_predicted_from_a_file_and_exported_it_says_the_same(
    whole: Trained, grades: Any, tmp_path: Path
) -> None:
    kept = predictions_file.read(whole.run_dir / predictions_file.FILE)
    raw = grades.inputs.numpy()[[int(key) for key in kept.keys]]
    np.save(tmp_path / "patients.npy", raw)
    out = tmp_path / "grades.csv"
    typed("predict", whole.run_dir, tmp_path / "patients.npy", "--out", out, folder=PROJECT)
    table = pd.read_csv(out)
    names = [f"grade {number}" for number in range(1, 6)]
    shares = table[[f"probability {name}" for name in names]].to_numpy()
    np.testing.assert_allclose(shares, kept.outputs, atol=1e-5)
    assert table["prediction"].tolist() == [names[one] for one in kept.outputs.argmax(1)]
    assert "largest difference" in typed("export", whole.run_dir, "--out", tmp_path, folder=PROJECT).output
    import onnxruntime  # type: ignore[import-untyped]  # it ships no types

    said, *_ = onnxruntime.InferenceSession(str(tmp_path / "model.onnx")).run(None, {"inputs": raw})
    np.testing.assert_allclose(said, kept.outputs, atol=1e-4)


@pytest.fixture
def broken(name: str, source: Any, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The method of the task raises; the list has it as often as it was called."""
    called: list[str] = []

    def raises(*_: Any) -> float:
        called.append(name)
        return 1 / 0

    monkeypatch.setattr(type(source.task), name, raises)
    return called


RAISED = re.compile(r"ZeroDivisionError: division by zero \([^()]*test_ordinal.py:\d+, in raises\)")


@pytest.mark.parametrize("name", ["hardest_caption", "predicted_label", "legend", "scores", "figures"])
def test_a_page_says_where_a_method_raises(whole: Trained, name: str, broken: list[str]) -> None:
    with chdir(PROJECT):
        page = run_page(whole.run_dir)
    notes = [one.text for section in page.sections for one in section.blocks if isinstance(one, Note)]
    assert broken
    assert any(RAISED.search(note) for note in notes)
    assert page.figures, "what does not need it is drawn"
