"""Curves of several seeds as a mean and a band."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from assay.analysis.read_runs import Curve
from assay.figure.figure import Line
from assay.report.read_sweep import ranked, read_sweep
from assay.report.sweep_figures import curve_figures, line_of

if TYPE_CHECKING:
    from pathlib import Path


def curve(steps: list[int], values: list[float]) -> Curve:
    return Curve(steps, [None] * len(steps), values)


def test_a_band_reaches_from_the_lowest_seed_to_the_highest(trained_sweep: Path) -> None:
    contents = read_sweep(trained_sweep)
    groups = ranked(contents)
    figures, problems = curve_figures(contents, groups)
    assert problems == []
    assert [figure.title for figure in figures][:2] == ["val/accuracy", "val/loss"]
    line = figures[1].marks[0]
    assert isinstance(line, Line)
    assert line.low is not None
    assert line.high is not None
    tables = [pd.read_csv(job.run_dir / "metrics.csv") for job in groups[0].jobs if job.run_dir is not None]
    values = np.stack([table["val/loss"].dropna().to_numpy() for table in tables])
    assert values.shape == (2, 3)
    np.testing.assert_allclose(line.y, values.mean(axis=0))
    np.testing.assert_allclose(line.low, values.min(axis=0))
    np.testing.assert_allclose(line.high, values.max(axis=0))
    assert "band" in figures[1].caption


def test_a_damaged_table_is_said_and_the_others_are_drawn(sweep: Path) -> None:
    (sweep / "0" / "metrics.csv").write_text("<script>\n")
    (sweep / "1" / "metrics.csv").unlink()
    contents = read_sweep(sweep)
    figures, problems = curve_figures(contents, ranked(contents))
    assert len(problems) == 2
    assert [mark.name[0] for mark in figures[0].marks] == ["2", "3"], "the best has no seed left"  # type: ignore[union-attr]
    assert "Of 3 configurations the best 2 with a curve" in figures[0].caption
    both = replace(contents, jobs=contents.jobs[:2])
    assert curve_figures(both, ranked(both))[0] == []


def test_a_run_that_diverged_does_not_flatten_all_others(sweep: Path) -> None:
    contents = read_sweep(sweep)
    figures = {one.title: one for one in curve_figures(contents, ranked(contents))[0]}
    loss = figures["val/loss"]  # a learning rate of 100 is among them
    values = [value for mark in loss.marks if isinstance(mark, Line) for value in mark.y]
    assert loss.y_range is not None
    outside = [value for value in values if not loss.y_range[0] <= value <= loss.y_range[1]]
    assert f"{len(outside)} point" in loss.caption
    assert min(outside) > 10 * loss.y_range[1]
    assert figures["val/accuracy"].y_range is None


def test_seeds_that_were_logged_at_other_steps_are_interpolated() -> None:
    line = line_of("", [curve([0, 10], [0.0, 10.0]), curve([5, 15], [7.0, 17.0])])
    assert line is not None
    np.testing.assert_allclose(line.x, [0, 5, 10, 15])
    np.testing.assert_allclose(line.y, [0, 6, 11, 17])


def test_what_is_not_finite_is_left_out_and_long_curves_keep_their_ends() -> None:
    assert line_of("", [curve([1, 2], [float("nan"), float("inf")])]) is None
    line = line_of("", [curve(list(range(10_000)), [float(step) for step in range(10_000)])])
    assert line is not None
    assert len(line.x) <= 120
    assert (line.x[0], line.x[-1], line.y[-1]) == (0, 9999, 9999.0)
    again = line_of("", [curve([3, 1, 3], [9.0, 1.0, 3.0])])
    assert again is not None
    assert list(again.y) == [1.0, 3.0], "a step that was logged twice counts by its last value"
