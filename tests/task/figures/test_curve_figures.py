from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn import metrics as sk  # type: ignore[import-untyped]  # scikit-learn ships no types
from tests.task.made_predictions import of_classes
from torchmetrics.classification import BinaryCalibrationError, MulticlassCalibrationError

from assay.figure.figure import Bars, Line
from assay.task.figures.class_figures import (
    Ranking,
    calibration,
    calibration_error,
    class_scores,
    ranking_figures,
)


def test_decisions_are_ranked_as_scikit_learn_ranks_each() -> None:
    generator = np.random.default_rng(0)
    scores = np.column_stack([generator.random(50), generator.random(50).round(1), np.full(50, 0.5)])
    positive = generator.random((50, 3)) < 0.4
    for weights in (np.ones(50), generator.integers(0, 3, 50).astype(float)):
        columns = zip(scores.T, positive.T, strict=True)
        areas, precisions = zip(*(Ranking(*one).scores(weights) for one in columns), strict=True)
        for truth, said, area, precision in zip(positive.T, scores.T, areas, precisions, strict=True):
            assert area == pytest.approx(sk.roc_auc_score(truth, said, sample_weight=weights))
            assert precision == pytest.approx(sk.average_precision_score(truth, said, sample_weight=weights))
    for none_or_all, precise in ((True, False), (False, True)):
        area, precision = Ranking(scores[:, 0], np.full(50, none_or_all)).scores(np.ones(50))
        assert np.isnan([area, precision]).tolist() == [True, precise]


def test_the_calibration_error_is_its_formula() -> None:
    generator = np.random.default_rng(0)
    chances = generator.random(1000)
    truth = generator.random(1000) < chances**2
    expected = 0.0
    for edge in range(15):
        inside = (chances >= edge / 15) & (chances < (edge + 1) / 15)
        expected += inside.mean() * abs(truth[inside].mean() - chances[inside].mean())
    assert calibration_error(chances, truth, np.ones(1000)) == pytest.approx(expected)


@pytest.mark.parametrize("num_classes", [2, 4])
def test_the_calibration_error_is_torchmetrics(num_classes: int) -> None:
    said = of_classes(num_classes)
    metric = BinaryCalibrationError(15) if num_classes == 2 else MulticlassCalibrationError(4, 15)
    outputs = torch.from_numpy(said.outputs[:, 1] if num_classes == 2 else said.outputs)
    theirs = metric(outputs, torch.from_numpy(said.targets))
    (ours,) = (score.value for score in class_scores(said) if score.name == "calibration error")
    assert ours == pytest.approx(float(theirs), abs=1e-6)


def test_the_diagram_shows_how_often_it_was_so() -> None:
    diagram, counts = calibration(np.array([0.1, 0.1, 0.9, 1.0, 1.0]), np.array([0, 1, 1, 1, 1]), "of x")
    _, line = diagram.marks
    assert isinstance(line, Line)
    assert list(line.x) == pytest.approx([0.1, 0.9, 1.0])
    assert list(line.y) == [0.5, 1, 1]
    assert line.low is not None
    assert 0.09 < line.low[0] < 0.1  # Wilson's of 1 in 2: 0.0945
    assert [sum(bars.values) for bars in counts.marks if isinstance(bars, Bars)] == [4, 1]


def test_what_has_no_curve_is_left_out_and_said() -> None:
    truth = np.array([True, True])
    assert ranking_figures([("a", truth, np.array([0.1, 0.2]))]) == []
    both = [("a", truth, np.array([0.1, 0.2])), ("b", np.array([True, False]), np.array([0.1, 0.2]))]
    roc, recall = ranking_figures(both)
    assert "1 without samples of both kinds" in roc.caption
    assert len(recall.marks) == 1


def test_a_curve_that_is_alone_has_its_number_in_the_caption() -> None:
    truth, scores = np.array([True, False, True, False]), np.array([0.9, 0.8, 0.7, 0.1])
    alone = [figure.caption for figure in ranking_figures([("benign", truth, scores)])]
    assert alone[0].startswith("benign (0.750), in brackets: the area below the curve.")
    assert alone[1].startswith("benign (0.833), in brackets: the average precision.")
    both = ranking_figures([("benign", truth, scores), ("malignant", ~truth, -scores)])
    assert both[0].caption == "In brackets: the area below the curve."
