from __future__ import annotations

import numpy as np
import pytest

from assay.analysis.read_runs import Curve
from assay.figure.figure import Line
from assay.report.run_parts import at_epoch, curve_figures, memory_figures, throughput_figure

CURVES = {
    "lr-SGD": Curve([0, 5], [None, None], [0.1, 0.2]),
    "val/accuracy": Curve([9], [1], [0.5]),
    "val/loss": Curve([9, 19], [1, 2], [0.5, float("nan")]),
    "train/loss": Curve([8, 18], [1, 2], [0.7, 0.6]),
    "train/loss_step": Curve([0, 5], [None, None], [0.9, 0.8]),
    "test/loss": Curve([20], [2], [0.5]),
    "DeviceStatsMonitor.on_train_batch_end/allocated_bytes.all.peak": Curve([1, 2], [1, 1], [2**20, 2**21]),
    "DeviceStatsMonitor.on_train_batch_start/allocated_bytes.all.peak": Curve([1], [1], [2**20]),
    "DeviceStatsMonitor.on_train_batch_end/num_alloc_retries": Curve([1], [1], [0]),
}
LOG = """\
2026-11-22T12:13:00.000Z INFO    assay: run digits
2026-11-22T12:13:20.000Z INFO    assay.progress: epoch  1/14    25.0s   train loss 1.4
2026-11-22T12:13:30.000Z INFO    assay.progress: epoch  2/14    26.5s
2026-11-22T12:13:35.000Z INFO    assay.progress: epoch  3/14    14.0s
2026-11-22T12:13:99.000Z INFO    assay.progress: epoch  4/14    damaged
2026-11-22T12:14:35.000Z INFO    assay.progress: epoch  5/14    after a gap
"""


def test_each_metric_has_a_figure_with_a_line_per_subset() -> None:
    figures = {figure.title: figure for figure in curve_figures(CURVES)}
    assert list(figures) == ["loss", "accuracy", "Learning rate"]
    assert [getattr(mark, "name", "") for mark in figures["loss"].marks] == [
        "val",
        "train",
        "train, each batch",
    ]
    (rate,) = figures["Learning rate"].marks
    assert isinstance(rate, Line)
    assert list(rate.y) == [0.1, 0.2]
    assert "1 of 6 values are not finite" in figures["loss"].caption


def test_metrics_of_one_target_of_several_have_figures_of_their_own() -> None:
    curves = {
        "val/wine/accuracy": Curve([9, 19], [1, 2], [0.5, 0.6]),
        "train/wine/accuracy": Curve([8, 18], [1, 2], [0.6, 0.7]),
        "test/wine/accuracy": Curve([20], [2], [0.5]),
        "val/alcohol/mae": Curve([9], [1], [0.5]),
    }
    figures = {figure.title: figure for figure in curve_figures(curves)}
    assert list(figures) == ["alcohol/mae", "wine/accuracy"]
    assert [getattr(mark, "name", "") for mark in figures["wine/accuracy"].marks] == ["val", "train"]


def test_memory_is_drawn_where_it_was_logged() -> None:
    (figure,) = memory_figures(CURVES)
    (line,) = figure.marks
    assert isinstance(line, Line)
    assert list(line.y) == [1, 2]
    assert not memory_figures({"val/loss": CURVES["val/loss"]})


def test_throughput_is_samples_by_the_time_from_epoch_to_epoch() -> None:
    figure = throughput_figure(LOG, 100)
    assert figure is not None
    (line,) = figure.marks
    assert isinstance(line, Line)
    assert list(line.x) == [2, 3]
    assert np.asarray(line.y) == pytest.approx([10, 20])
    seconds = throughput_figure(LOG, 0)
    assert seconds is not None
    assert seconds.y_label == "seconds"
    assert throughput_figure("nothing", 100) is None


def test_the_best_checkpoint_s_scores_are_those_of_its_validation() -> None:
    """Validated twice an epoch; training is a mean of the whole epoch."""
    curves = {
        "val/loss": Curve([4, 9, 14, 19], [1, 1, 2, 2], [0.9, 0.5, 0.2, 0.3]),
        "val/f1": Curve([4, 9, 14, 19], [1, 1, 2, 2], [0.1, 0.5, 0.8, 0.7]),
        "train/loss": Curve([9, 19], [1, 2], [0.7, 0.6]),
        "lr-SGD": Curve([0], [None], [0.1]),
    }
    best = {"monitor": "val/loss", "value": 0.2, "epoch": 2}
    assert at_epoch(curves, best) == (14, {"val/loss": 0.2, "val/f1": 0.8, "train/loss": 0.6})
    assert at_epoch(curves, best | {"epoch": 7}) is None
    assert at_epoch(curves, {}) is None
    loss = curve_figures(curves, str.upper, ("epoch 2, tested", 14))[0]
    *_, line = loss.marks
    assert isinstance(line, Line)
    assert (loss.title, line.name) == ("LOSS", "epoch 2, tested")
    assert (list(line.x), list(line.y)) == ([14, 14], [0.2, 0.9])


@pytest.mark.parametrize(
    ("rates", "log"),
    [
        ([0.1] * 3 + [0.01] * 3 + [0.001] * 3, "y"),
        ([0.9**step for step in range(60)], "y"),
        ([0.5 + 0.5 * np.cos(step / 20) for step in range(60)], ""),
        ([0.1, 0.05, 0.0], ""),
    ],
)
def test_a_learning_rate_that_falls_by_factors_has_a_logarithmic_axis(rates: list[float], log: str) -> None:
    (figure,) = curve_figures({"lr-SGD": Curve(list(range(len(rates))), [None] * len(rates), rates)})
    assert figure.log == log


def test_shares_are_in_per_cent() -> None:
    figures = {figure.title: figure.shares for figure in curve_figures(CURVES)}
    assert figures == {"loss": "", "accuracy": "y", "Learning rate": ""}
