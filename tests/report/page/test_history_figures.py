from __future__ import annotations

import numpy as np
import pytest

from assay.figure.figure import Line
from assay.record.runs.curves import Curve
from assay.report.page.history_figures import curve_figures, memory_figures, throughput_figure

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
