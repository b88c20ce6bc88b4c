"""Typed predictions: what a user asks them, and what is printed."""

from __future__ import annotations

import numpy as np
import pytest

from assay.task.prediction.prediction_batch import (
    MOST_COLUMNS,
    ClassPredictions,
    EmbeddingPredictions,
    LabelPredictions,
    ValuePredictions,
)
from assay.task.task_of import task_of

SCORES = np.array([[0.1, 0.7, 0.2], [0.5, 0.5, 0.0]], dtype=np.float32)
NAMES = ("a", "b\x1b[31m", "c")


def test_classes() -> None:
    found = task_of("multiclass").typed(SCORES, "probabilities", NAMES)
    assert isinstance(found, ClassPredictions)
    assert (len(found), found.labels) == (2, ["b\x1b[31m", "a"])  # of equals the first, as argmax has it
    assert found[0].top_k(2) == [("b\x1b[31m", float(SCORES[0, 1])), ("c", float(SCORES[0, 2]))]
    assert found.top_k(9)[1] == [("a", 0.5), ("b\x1b[31m", 0.5), ("c", 0.0)]
    assert (found[0].index, found[0].probability) == (1, float(SCORES[0, 1]))
    assert str(found[0]) == "b\\x1b[31m 0.7000, c 0.2000, a 0.1000"
    assert str(found).splitlines()[1].startswith("1  a 0.5000")
    frame = found.to_frame(top_k=2)
    assert list(frame)[:4] == ["prediction", "probability", "top_2", "probability_2"]
    assert frame["probability c"].tolist() == pytest.approx([0.2, 0.0])
    assert frame["probability"].dtype == np.float32
    assert [one.label for one in found[1:]] == ["a"]


def test_a_thousand_classes_are_no_thousand_columns() -> None:
    names = tuple(map(str, range(MOST_COLUMNS + 1)))
    scores = np.random.default_rng(0).random((3, len(names)), dtype=np.float32)
    assert list(ClassPredictions(scores, names).columns(top_k=1)) == ["prediction", "probability"]


def test_scores_are_not_called_probabilities() -> None:
    found = task_of("multiclass").typed(4 * SCORES, "scores", NAMES)
    assert isinstance(found, ClassPredictions)
    assert found[0].label == NAMES[1]
    assert "score" in found.columns()
    with pytest.raises(AttributeError, match="says no probabilities"):
        found.probabilities  # noqa: B018 - the point


def test_labels() -> None:
    found = task_of("multilabel").typed(SCORES + np.float32(0.3), "probabilities", NAMES)
    assert isinstance(found, LabelPredictions)
    assert found.labels == [("b\x1b[31m",), ("a", "b\x1b[31m")]
    assert found.columns()["prediction"] == ["b\x1b[31m", "a;b\x1b[31m"]


def test_values_and_embeddings() -> None:
    values = task_of("regression").typed(SCORES[:, :1], "values", ("price",))
    assert isinstance(values, ValuePredictions)
    assert float(values[1]) == 0.5
    assert list(values.to_frame()) == ["prediction"]
    embeddings = task_of("multiclass").typed(SCORES, "embeddings", NAMES)
    assert isinstance(embeddings, EmbeddingPredictions)
    assert list(embeddings.to_frame()) == ["embedding_0", "embedding_1", "embedding_2"]
    assert str(embeddings[:0]) == "no predictions"
