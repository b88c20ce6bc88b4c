"""The threshold of two classes against scikit-learn's F1 of every threshold, and where predictions use it."""

from __future__ import annotations

from contextlib import chdir
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import (  # type: ignore[import-untyped]  # it has no stubs
    f1_score,
    precision_score,
    recall_score,
)
from tests.conftest import unchanged_process

import assay
from assay.record import predictions_file
from assay.record.run_record import RunRecord
from assay.run.kept_predictions import best_threshold

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.always
@pytest.mark.parametrize("seed", range(20))
def test_its_f1_is_nearly_the_highest_and_none_such_is_nearer_to_one_half(seed: int) -> None:
    draw = np.random.default_rng(seed)
    right = draw.random(300) < 0.3
    probabilities = (draw.normal(0.3, 0.15, 300) + 0.2 * right).clip(0, 1).round(draw.integers(1, 4))
    found = best_threshold(probabilities, right)
    assert found is not None
    edges = np.append(np.unique(probabilities), 0.0)
    scores = {edge: f1_score(right, probabilities >= edge) for edge in edges}
    highest = max(scores.values())
    own = f1_score(right, probabilities >= found)
    assert own >= 0.95 * highest - 1e-12
    middles = (edges[1:-1] + edges[:-2]) / 2
    nearer = [edge for edge in middles if abs(edge - 0.5) < abs(found - 0.5) - 1e-6]
    assert all(f1_score(right, probabilities >= edge) < 0.95 * highest for edge in nearer)


def test_few_samples_tell_nothing() -> None:
    assert best_threshold(np.linspace(0, 1, 40), np.arange(40) >= 21) is None
    assert best_threshold(np.linspace(0, 1, 200), np.arange(200) >= 100) is None  # as many of either class
    assert best_threshold(np.linspace(0, 1, 200), np.arange(200) >= 150) is not None


def table(folder: Path, count: int) -> list[str]:
    draw = np.random.default_rng(0)
    inputs = draw.normal(size=(count, 3)).round(3)
    chance = 1 / (1 + np.exp(-(1.5 * inputs[:, 0] - inputs[:, 1] - 1.5)))
    frame = pd.DataFrame(inputs, columns=list("abc"))
    frame.assign(left=np.where(draw.random(count) < chance, "yes", "no")).to_csv(
        folder / "t.csv", index=False
    )
    source = ["data=table", "data.source.path=t.csv", "data.source.target=left", "hydra.run.dir=run"]
    return [*source, "device=cpu", "trainer.max_epochs=5", "baseline=none", "callbacks.progress_bar=null"]


def test_predict_uses_what_validation_has_chosen(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with chdir(tmp_path), unchanged_process():
        result: Any = assay.train(table(tmp_path, 1500))
        threshold = result.threshold["value"]
        assert RunRecord.load(tmp_path / "run").threshold == result.threshold
        assert result.metrics["test/average_precision"] > 0.5
        kept = predictions_file.read(tmp_path / "run" / predictions_file.FILE)
        said, right = kept.outputs[:, 1] >= threshold, kept.targets == 1
        assert result.threshold["class"] == "yes"
        assert result.threshold["precision"] == pytest.approx(precision_score(right, said))
        assert result.threshold["recall"] == pytest.approx(recall_score(right, said))
        data = result.trainer.datamodule
        rows = data.splits.rows["val"]
        validation = pd.read_csv("t.csv").iloc[rows]
        predicted = result.predictor(validation.drop(columns="left"))
        scores = predicted.probabilities[:, 1]
        assert threshold == best_threshold(scores, (validation["left"] == "yes").to_numpy())
        assert predicted.labels == np.where(scores >= threshold, "yes", "no").tolist()
        assert threshold != 0.5
        frame = predicted.to_frame()
        assert frame["prediction"].tolist() == predicted.labels
        assert [predicted[at].label for at in range(5)] == predicted.labels[:5]
        assert any(scores[at] < 0.5 for at in np.flatnonzero(np.array(predicted.labels) == "yes"))
