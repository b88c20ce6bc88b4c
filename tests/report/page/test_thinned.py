from __future__ import annotations

import numpy as np

from assay.figure.figure import Figure, Line, Points
from assay.report.page import thinned


def test_no_peak_and_no_end_of_a_line_is_lost() -> None:
    y = np.random.default_rng(0).normal(size=10_000)
    y[[1234, 8765]] = 50, -50
    figure = thinned(
        Figure("a", "", (Line("a", np.arange(10_000), y, low=y - 1, high=y + 1),), caption="What.")
    )
    (line,) = figure.marks
    assert isinstance(line, Line)
    x = np.asarray(line.x)
    assert len(x) <= 802
    assert {0, 1234, 8765, 9999} <= set(x.tolist())
    assert (np.diff(x) > 0).all()
    assert (np.asarray(line.y) == y[x]).all()
    assert line.low is not None
    assert (np.asarray(line.low) == y[x] - 1).all()
    assert figure.caption.startswith("What. Long curves")


def test_gaps_stay() -> None:
    y = np.zeros(10_000)
    y[4000:6000] = np.nan
    (line,) = thinned(Figure("a", "", (Line("a", np.arange(10_000), y),))).marks
    assert isinstance(line, Line)
    x, gap = np.asarray(line.x), np.isnan(np.asarray(line.y))
    assert gap.sum() > 50
    assert (gap == ((x >= 4000) & (x < 6000))).all()


def test_a_scatter_keeps_points_with_what_is_said_of_them() -> None:
    x = np.arange(5000)
    figure = Figure("a", "", (Points("a", x, -x, texts=[str(i) for i in x]),))
    first, again = thinned(figure), thinned(figure)
    (points,), (same,) = first.marks, again.marks
    assert isinstance(points, Points)
    assert isinstance(same, Points)
    assert len(points.x) == 2000
    assert list(points.x) == list(same.x)
    assert [str(x) for x in points.x] == list(points.texts)
    assert "2,000 of 5,000" in first.caption


def test_a_small_figure_is_left_as_it_is() -> None:
    figure = Figure("a", "", (Line("a", [1], [2]), Points("b", [1], [2])))
    assert thinned(figure) is figure
