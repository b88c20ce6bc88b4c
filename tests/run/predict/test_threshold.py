"""A threshold is chosen on validation samples by a rule, said, and written beside what it decides."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import (  # type: ignore[import-untyped]  # ships no types
    precision_recall_curve,
    precision_score,
    recall_score,
)
from tests.run.predict.conftest import two_columns
from typer.testing import CliRunner

from assay.cli.app import app
from assay.run.predictor import read_predictor
from assay.run.threshold import set_threshold, threshold_with

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import Trained


@st.composite
def samples(draw: st.DrawFn) -> tuple[Any, Any]:
    """Probabilities with many ties, and at least one sample of the second class."""
    size = draw(st.integers(2, 40))
    values = st.sampled_from([0.0, 1e-9, 0.1, 0.2, 0.5, 0.7, 1.0])
    probabilities = draw(st.lists(values, min_size=size, max_size=size))
    right = np.array(draw(st.lists(st.booleans(), min_size=size, max_size=size)))
    right[0] = True
    return np.array(probabilities, np.float32), right


@given(samples(), st.sampled_from(["precision", "recall"]), st.floats(0, 1))
def test_a_rule_against_the_curve_of_scikit_learn(drawn: tuple[Any, Any], score: str, least: float) -> None:
    probabilities, right = drawn
    precision, recall, _ = (
        values[:-1] for values in (*precision_recall_curve(right, probabilities)[:2], [0, 0])
    )
    asked, other = (recall, precision) if score == "recall" else (precision, recall)
    value = threshold_with(probabilities, right, score, least)
    if not (asked >= least).any():
        assert value is None
        return
    assert value is not None
    predicted = probabilities >= value
    scores = {
        "precision": precision_score(right, predicted, zero_division=0),
        "recall": recall_score(right, predicted),
    }
    assert scores[score] >= least
    assert scores[{"precision": "recall", "recall": "precision"}[score]] == other[asked >= least].max()


def validation(run: Trained) -> tuple[Any, Any]:
    """Probabilities of the second class of the validation samples, and whether each is of it."""
    data, module = run.datamodule, run.module.eval()
    batches = [data.on_after_batch_transfer(batch, 0) for batch in data.val_dataloader()]
    said = np.concatenate([module(inputs).sigmoid().detach().numpy().reshape(-1) for inputs, _ in batches])
    return two_columns(said)[:, 1], np.concatenate([targets.numpy() == 1 for _, targets in batches])


def invoke(*typed: object) -> Any:
    return CliRunner().invoke(app, [*map(str, typed)])


def test_a_rule_on_validation_samples(yes_no_run: Trained) -> None:
    probabilities, right = validation(yes_no_run)
    predictor = read_predictor(yes_no_run.run_dir, "best", "cpu")
    set_threshold(predictor, yes_no_run.run_dir, "recall>=0.8")
    about = predictor.about_threshold
    precision, recall, _ = precision_recall_curve(right, probabilities)
    assert about["recall"] == recall_score(right, probabilities >= about["value"]) >= 0.8
    assert about["precision"] == pytest.approx(precision[recall >= 0.8].max())
    assert about["chosen"] == "by recall >= 0.8 on validation"
    assert predictor.threshold == about["value"]


@pytest.mark.parametrize("suffix", ["csv", "parquet", "jsonl"])
def test_what_was_used_is_written_beside_the_predictions(
    yes_no_run: Trained, tmp_path: Path, suffix: str
) -> None:
    inputs = np.random.default_rng(0).random((20, 30)) * 20
    np.save(tmp_path / "new.npy", inputs)
    out = tmp_path / f"said.{suffix}"
    told = invoke("predict", yes_no_run.run_dir, tmp_path / "new.npy", "--threshold", "0.3", "-o", out)
    assert told.exit_code == 0, told.stderr
    name = yes_no_run.config.spec.class_names[1]
    assert f"note   threshold 0.3, as typed, for '{name}'" in told.stderr
    assert "assay export" in told.stdout
    assert "--threshold=0.3" in told.stdout
    read: Any = {"csv": pd.read_csv, "parquet": pd.read_parquet}.get(
        suffix, lambda path: pd.read_json(path, lines=True)
    )
    frame = read(out)
    assert np.isclose(frame["threshold"], 0.3, rtol=1e-12).all()
    assert ((frame[f"probability {name}"] >= 0.3) == (frame["prediction"] == name)).all()
    document = json.loads(
        invoke("predict", yes_no_run.run_dir, tmp_path / "new.npy", "--threshold=0.3", "--json").stdout
    )
    assert document["threshold"] == {"chosen": "as typed", "value": 0.3, "class": name}


@pytest.mark.parametrize(
    ("typed", "message"),
    [
        ("recal>=0.8", "expected a number from 0 to 1, or a rule such as"),
        ("recall", "expected a number from 0 to 1"),
        ("1.5", "got '1.5'"),
        ("nan", "got 'nan'"),
        ("recall>=80", "got 'recall>=80'"),
        ("", "got ''"),
    ],
)
def test_what_is_no_threshold_is_refused(
    yes_no_run: Trained, tmp_path: Path, typed: str, message: str
) -> None:
    told = invoke("predict", yes_no_run.run_dir, tmp_path / "none.npy", f"--threshold={typed}")
    assert told.exit_code == 2
    [first, _] = told.stderr.strip().splitlines()
    assert first.startswith("error: --threshold: ")
    assert message in first


def test_a_threshold_of_more_classes_is_refused(kind_run: Trained, table: Path) -> None:
    told = invoke("predict", kind_run.run_dir, table / "rows.csv", "--threshold=0.3")
    assert "--threshold: the model does not predict probabilities of two classes" in told.stderr
