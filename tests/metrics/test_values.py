"""Curves and matrices of a run, in its record."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch

from assay.metrics.tracker import is_scalar, listed, size

if TYPE_CHECKING:
    from tests.conftest import Train

PLACE = "torchmetrics.classification"
CURVES = (
    f"+metrics.eval.metrics.roc={{_target_:{PLACE}.BinaryROC}}",
    f"+metrics.eval.metrics.pr={{_target_:{PLACE}.BinaryPrecisionRecallCurve,thresholds:50}}",
    f"+metrics.train.metrics.confusion={{_target_:{PLACE}.BinaryConfusionMatrix}}",
)


def test_curves_are_kept_in_the_record(train: Train) -> None:
    run = train("data=breast_cancer", "model=linear", "trainer.max_epochs=2", *CURVES)
    matrices, metrics = run.record["matrices"], run.record["metrics"]
    false_positive, true_positive, thresholds = matrices["test/roc"]
    assert len(false_positive) == len(true_positive) == len(thresholds) > 2
    # The area under the curve is the metric that is computed apart from it.
    assert np.trapezoid(true_positive, false_positive) == pytest.approx(metrics["test/auroc"], abs=1e-5)
    precision, recall, thresholds = matrices["val/pr"]
    assert (len(precision), len(recall), len(thresholds)) == (51, 51, 50)
    assert np.sum(matrices["train/confusion"]) > 300
    assert "test/roc" not in metrics
    assert not any("roc" in name.split("/") for name in run.rows[0])


def test_what_is_listed() -> None:
    curve = (torch.tensor([0.0, 1.0]), [torch.tensor(2.0)], {"a": torch.zeros(2, 2, dtype=torch.int64)})
    assert listed(curve) == [[0.0, 1.0], [2.0], {"a": [[0, 0], [0, 0]]}]
    assert size(curve) == 7
    assert is_scalar(torch.ones(1, 1))
    assert not is_scalar(torch.ones(2))
    with pytest.raises(TypeError, match="str"):
        listed("text")
    with pytest.raises(TypeError, match="complex64"):
        listed(torch.tensor(1j))
