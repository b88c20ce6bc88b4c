"""Which way a score is better, as torchmetrics says."""

from __future__ import annotations

from torchmetrics import MetricCollection
from torchmetrics.classification import MulticlassAccuracy, MulticlassConfusionMatrix
from torchmetrics.regression import MeanSquaredError
from torchmetrics.wrappers import ClasswiseWrapper

from assay.metrics.direction import directions


def test_a_loss_falls_an_accuracy_rises_and_a_matrix_says_nothing() -> None:
    metrics = MetricCollection(
        {"accuracy": MulticlassAccuracy(3), "mse": MeanSquaredError(), "matrix": MulticlassConfusionMatrix(3)}
    )
    assert directions(metrics, "test") == {"test/loss": "min", "test/accuracy": "max", "test/mse": "min"}


def test_the_values_of_each_class_have_the_direction_of_their_metric() -> None:
    per_class = ClasswiseWrapper(MulticlassAccuracy(2, average=None), labels=["cat", "dog"])
    found = directions(MetricCollection({"accuracy": per_class}), "val")
    assert found == {"val/loss": "min", "val/accuracy": "max"}


def test_the_metrics_keep_their_state() -> None:
    metrics = MetricCollection({"mse": MeanSquaredError()})
    assert list(directions(metrics, "train")) == ["train/loss", "train/mse"]
    assert list(metrics) == ["mse"]
