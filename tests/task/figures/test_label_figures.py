from __future__ import annotations

import pytest
from sklearn import metrics  # type: ignore[import-untyped]  # it has no stubs
from tests.task.made_predictions import of_labels

from assay.figure.figure import Bars
from assay.task.figures.class_figures import label_figures, label_scores


def test_scores_are_scikit_learns() -> None:
    predictions = of_labels()
    said, targets = predictions.outputs >= 0.5, predictions.targets
    assert {score.name: score.value for score in label_scores(predictions)} == pytest.approx(
        {
            "f1 (macro)": metrics.f1_score(targets, said, average="macro"),
            "f1 (micro)": metrics.f1_score(targets, said, average="micro"),
            "accuracy": (said == targets).mean(),
            "exact match": metrics.accuracy_score(targets, said),
            "auroc (macro)": metrics.roc_auc_score(targets, predictions.outputs, average="macro"),
        }
    )
    assert all(score.low < score.value < score.high for score in label_scores(predictions))


def test_figures_are_scikit_learns() -> None:
    predictions = of_labels()
    assert predictions.targets is not None
    said, targets = predictions.outputs >= 0.5, predictions.targets
    drawn = {figure.name: figure for figure in label_figures(predictions)}
    theirs = metrics.precision_recall_fscore_support(targets, said)
    for bars, values in zip(drawn["per_label"].marks, theirs, strict=False):
        assert isinstance(bars, Bars)
        assert bars.values == pytest.approx(values)
    false, missed = (mark.values for mark in drawn["label_errors"].marks if isinstance(mark, Bars))
    confusion = metrics.multilabel_confusion_matrix(targets, said)
    assert list(false) == list(confusion[:, 0, 1])
    assert list(missed) == list(confusion[:, 1, 0])
    area = metrics.roc_auc_score(targets[:, 1], predictions.outputs[:, 1])
    assert f"l1 ({area:.3f})" in [getattr(mark, "name", "") for mark in drawn["roc"].marks]
