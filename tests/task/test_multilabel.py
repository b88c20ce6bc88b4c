from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.datasets import make_multilabel_classification  # type: ignore[import-untyped]  # scikit-learn ships no types
from torchmetrics.functional.classification import (
    multilabel_accuracy,
    multilabel_confusion_matrix,
    multilabel_f1_score,
)

from assay.errors import DataError
from assay.figure.figure import Bars
from assay.task.prediction.prediction_batch import LabelPredictions
from assay.task.prediction.predictions import Predictions
from assay.task.task_of import task_of

MULTILABEL = task_of("multilabel")
LABELS = make_multilabel_classification(100, n_classes=4, random_state=0)[1]


@pytest.mark.parametrize("dtype", [torch.int64, torch.uint8, torch.bool, torch.float32])
def test_labels_of_any_type(dtype: torch.dtype) -> None:
    targets = MULTILABEL.as_targets(torch.from_numpy(LABELS).to(dtype))
    MULTILABEL.check("all", targets, "abcd")
    assert MULTILABEL.sizes(targets, "abcd") == {
        "num_classes": 4,
        "class_counts": tuple(LABELS.sum(0).tolist()),
    }
    assert MULTILABEL.number_classes([targets]) == ("0", "1", "2", "3")
    assert MULTILABEL.hard_targets(targets).tolist() == LABELS.tolist()


def test_what_metrics_see_of_soft_labels() -> None:
    assert MULTILABEL.hard_targets(torch.tensor([[0.4, 0.5], [0.9, 0.0]])).tolist() == [[0, 1], [1, 0]]


def test_more_than_yes_and_no() -> None:
    with pytest.raises(DataError, match="from 0 to 2; multi-hot targets go from 0 to 1"):
        MULTILABEL.check("all", torch.tensor([[0, 2], [1, 0]]), "ab")


def test_one_dimension_is_no_matrix_of_labels() -> None:
    with pytest.raises(DataError, match=r"shape \(3,\).*a column of 0 and 1 per label"):
        MULTILABEL.check("all", torch.tensor([0, 1, 1]), "ab")


def test_in_words() -> None:
    assert [MULTILABEL.in_words({"num_classes": size}) for size in (1, 3)] == ["1 label", "3 labels"]


def test_a_label_is_on_where_torchmetrics_says_so() -> None:
    """Exactly at 0.5, too: in predictions, in what an export is compared by, in scores and in figures."""
    generator, half = np.random.default_rng(0), np.float32(0.5)
    around = [0, np.nextafter(half, np.float32(0)), half, np.nextafter(half, np.float32(1)), 1]
    outputs = generator.choice(np.array(around, np.float32), (40, 3))
    targets = generator.integers(0, 2, (40, 3)).astype(np.int8)
    names, keys = ("a", "b", "c"), tuple(map(str, range(40)))
    said, right = torch.from_numpy(outputs), torch.from_numpy(targets).int()
    predictions = Predictions("multilabel", "probabilities", keys, outputs, targets, names)
    scores = {score.name: score.value for score in MULTILABEL.scores(predictions)}
    assert scores["accuracy"] == pytest.approx(float(multilabel_accuracy(said, right, 3)))
    assert scores["f1 (macro)"] == pytest.approx(float(multilabel_f1_score(said, right, 3)))
    matrices = multilabel_confusion_matrix(said, right, 3)
    errors = next(figure for figure in MULTILABEL.figures(predictions) if figure.name == "label_errors")
    bars = [list(mark.values) for mark in errors.marks if isinstance(mark, Bars)]
    assert bars == [matrices[:, 0, 1].tolist(), matrices[:, 1, 0].tolist()]
    on = [
        tuple(name for name, share in zip(names, row, strict=True) if share > 0.5) for row in outputs.tolist()
    ]
    labels = MULTILABEL.labels(outputs)
    assert labels is not None
    assert LabelPredictions(outputs, names).labels == on
    assert [tuple(np.array(names)[row]) for row in labels] == on
    assert [MULTILABEL.said(predictions, at).partition(";")[0] for at in range(40)] == [
        " + ".join(one) or "none" for one in on
    ]
    exact = MULTILABEL.is_right(predictions)
    assert exact is not None
    assert exact.tolist() == [
        one == tuple(name for name, is_on in zip(names, row, strict=True) if is_on)
        for one, row in zip(on, targets, strict=True)
    ]
