from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from sklearn import metrics  # type: ignore[import-untyped]  # it has no stubs
from tests.task.made_predictions import of_classes

from assay.figure.figure import Bars, Heatmap, Line
from assay.figure.to_plotly import to_plotly
from assay.task.figures.class_figures import class_figures, class_scores

if TYPE_CHECKING:
    from assay.task.prediction.predictions import Predictions


def figures(predictions: Predictions) -> dict[str, tuple[Any, ...]]:
    return {figure.name: figure.marks for figure in class_figures(predictions)}


def scores(predictions: Predictions) -> dict[str, float]:
    return {score.name: score.value for score in class_scores(predictions)}


def test_scores_of_several_classes_are_scikit_learns() -> None:
    said = of_classes()
    targets, labels = said.targets, said.outputs.argmax(1)
    assert scores(said) == pytest.approx(
        {
            "accuracy": metrics.accuracy_score(targets, labels),
            "f1 (macro)": metrics.f1_score(targets, labels, average="macro"),
            "balanced accuracy": metrics.balanced_accuracy_score(targets, labels),
            "auroc (macro)": metrics.roc_auc_score(
                np.eye(4, dtype=int)[targets], said.outputs, average="macro"
            ),
            "log loss": -np.log(said.outputs[np.arange(300), targets].astype(float)).mean(),
            "calibration error": scores(said)["calibration error"],  # see test_curve_figures
        },
        rel=1e-5,
    )


def test_scores_of_two_classes_are_scikit_learns_also_where_samples_tie() -> None:
    said = of_classes(2)
    said = replace(said, outputs=said.outputs.round(1).astype(np.float32))
    targets, labels, chances = said.targets, said.outputs.argmax(1), said.outputs[:, 1]
    second = said.class_names[1]
    theirs = {
        f"f1 of {second}": metrics.f1_score(targets, labels),
        f"precision of {second}": metrics.precision_score(targets, labels),
        f"recall of {second}": metrics.recall_score(targets, labels),
        "auroc": metrics.roc_auc_score(targets, chances),
        f"average precision of {second}": metrics.average_precision_score(targets, chances),
    }
    ours = scores(said)
    assert {name: ours[name] for name in theirs} == pytest.approx(theirs)


def test_intervals_are_those_of_scores_of_resampled_data() -> None:
    said = of_classes(2)
    assert said.targets is not None
    generator = np.random.default_rng(7)
    theirs = []
    for _ in range(1000):
        drawn = generator.integers(0, 300, 300)
        theirs.append(metrics.roc_auc_score(said.targets[drawn], said.outputs[drawn, 1]))
    (auroc,) = (score for score in class_scores(said) if score.name == "auroc")
    assert [auroc.low, auroc.high] == pytest.approx(np.quantile(theirs, [0.025, 0.975]), abs=0.004)


def test_the_mean_auroc_is_that_of_the_classes_which_have_one() -> None:
    said = of_classes(3, names=("a", "b", "never"))
    assert said.targets is not None
    said = replace(said, targets=np.minimum(said.targets, 1))
    theirs = [metrics.roc_auc_score(said.targets == label, said.outputs[:, label]) for label in (0, 1)]
    assert scores(said)["auroc (macro)"] == pytest.approx(np.mean(theirs))
    one = replace(said, targets=np.zeros_like(said.targets))
    assert np.isnan(scores(one)["auroc (macro)"])


def test_the_mean_auroc_of_very_many_has_no_interval_and_takes_no_time() -> None:
    (auroc,) = (score for score in class_scores(of_classes(60, 2000)) if score.name == "auroc (macro)")
    assert np.isfinite(auroc.value)
    assert np.isnan([auroc.low, auroc.high]).all()


def test_figures_of_several_classes_are_scikit_learns() -> None:
    said = of_classes()
    targets, labels = said.targets, said.outputs.argmax(1)
    drawn = figures(said)
    matrix, shares = (drawn[name][0] for name in ("confusion_matrix", "confusion_matrix_normalised"))
    assert isinstance(matrix, Heatmap)
    assert (matrix.values == metrics.confusion_matrix(targets, labels)).all()
    assert shares.values == pytest.approx(metrics.confusion_matrix(targets, labels, normalize="true"))
    for bars, theirs in zip(
        drawn["per_class"], metrics.precision_recall_fscore_support(targets, labels), strict=False
    ):
        assert isinstance(bars, Bars)
        assert bars.values == pytest.approx(theirs)
    _, *curves = drawn["roc"]
    for label, curve in enumerate(curves):
        false, true, _ = metrics.roc_curve(targets == label, said.outputs[:, label])
        assert isinstance(curve, Line)
        assert np.array_equal(curve.x, false)
        assert np.array_equal(curve.y, true)
        area = metrics.roc_auc_score(targets == label, said.outputs[:, label])
        assert curve.name == f"c{label} ({area:.3f})"


def test_of_two_classes_the_second_has_the_curves() -> None:
    said = of_classes(2, names=("no", "yes"))
    drawn = figures(said)
    area = metrics.roc_auc_score(said.targets, said.outputs[:, 1])
    assert [curve.name for curve in drawn["roc"]] == ["", f"yes ({area:.3f})"]
    assert "confusions" not in drawn


def test_many_classes_are_shown_in_part_and_the_caption_says_so() -> None:
    drawn = {figure.name: figure for figure in class_figures(of_classes(80, 2000))}
    assert len(drawn["confusion_matrix"].marks[0].y_names) == 50  # type: ignore[union-attr]  # a heatmap
    assert "50 of 80 classes" in drawn["confusion_matrix"].caption
    assert "30 of 80" in drawn["per_class"].caption
    assert "lowest F1" in drawn["roc"].caption


def test_classes_of_one_name_and_classes_without_samples_are_fine() -> None:
    said = of_classes(3, names=("same", "same", "never"))
    assert said.targets is not None
    said = replace(said, targets=np.minimum(said.targets, 1))
    for figure in class_figures(said):
        to_plotly(figure)
    assert len(figures(said)["roc"]) == 3
    assert np.isfinite(scores(said)["balanced accuracy"])


def test_scores_that_are_no_probabilities_are_not_calibrated() -> None:
    said = replace(of_classes(), kind="scores")
    assert "calibration" not in figures(said)
    assert "log loss" not in scores(said)
    assert "roc" in figures(said)
