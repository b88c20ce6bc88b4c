"""What parameters have to do with scores, as figures."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from tests.report.sweep.made import ACCURACY, LOSS, contents, job

from assay.figure.figure import Bars, ParallelCoordinates, Points
from assay.report.read_sweep import ranked, read_sweep
from assay.report.sweep_figures import parameter_figures, pareto_front, tradeoff

if TYPE_CHECKING:
    from pathlib import Path


def test_of_a_real_sweep(trained_sweep: Path) -> None:
    found = read_sweep(trained_sweep)
    figures, notes = parameter_figures(found, ranked(found))
    assert [figure.name for figure in figures] == ["parallel_coordinates", "slice_1"]
    assert notes == ["Importance: 2 finished configurations are too few: at least 10 are needed."]
    parallel = figures[0].marks[0]
    assert isinstance(parallel, ParallelCoordinates)
    assert list(parallel.columns) == ["optimizer.lr", "val/accuracy", "val/loss"]
    against = tradeoff(found, ranked(found))
    assert against is not None
    points = against.marks[1]
    assert isinstance(points, Points)
    assert len(points.x) == 2
    assert against.x_label == "val/accuracy (higher is better)"


def test_importance_orders_the_slices() -> None:
    draw = np.random.default_rng(0)
    jobs = []
    for number in range(40):
        lr, kind = 10 ** draw.uniform(-4, -1), draw.choice(["a", "b"])
        jobs.append(job(str(number), {"kind": str(kind), "lr": repr(lr)}, abs(np.log10(lr) + 2)))
    found = contents(jobs)
    figures, notes = parameter_figures(found, ranked(found))
    assert [figure.name for figure in figures] == ["parallel_coordinates", "importance", "slice_1", "slice_2"]
    assert [figure.title for figure in figures[2:]] == ["lr", "kind"]
    assert figures[2].log == "x"
    bars = figures[3].marks[0]
    assert isinstance(bars, Bars)
    assert sorted(bars.labels) == ["a", "b"]
    assert notes == []


def test_a_bar_is_the_mean_of_the_configurations_with_its_value() -> None:
    values = [("a", "1", 0.2), ("a", "2", 0.4), ("b", "1", 0.1), ("b", "2", 0.9)]
    found = contents([job(str(n), {"kind": kind, "x": x}, loss) for n, (kind, x, loss) in enumerate(values)])
    figures, _ = parameter_figures(found, ranked(found))
    (bars,) = next(figure for figure in figures if figure.title == "kind").marks
    assert isinstance(bars, Bars)
    assert list(bars.labels) == ["b", "a"], "the best value first"
    np.testing.assert_allclose(bars.values, [0.5, 0.3])
    np.testing.assert_allclose(np.array([bars.low, bars.high], dtype=float), [[0.1, 0.2], [0.9, 0.4]])


def test_the_front_is_what_no_point_dominates() -> None:
    draw = np.random.default_rng(3)
    x, y = draw.integers(0, 20, 60).astype(float), draw.integers(0, 20, 60).astype(float)
    for first in ("minimize", "maximize"):
        for second in ("minimize", "maximize"):
            costs = np.stack([x if first == "minimize" else -x, y if second == "minimize" else -y], axis=1)
            beaten = [any((other <= one).all() and (other < one).any() for other in costs) for one in costs]
            expected = {tuple(cost) for cost, is_beaten in zip(costs, beaten, strict=True) if not is_beaten}
            front = pareto_front(x, y, first, second)
            assert {tuple(cost) for cost in costs[front]} == expected


def test_one_objective_and_nothing_finished_draw_nothing() -> None:
    found = contents([job("0", {"lr": "1"}, None), job("1", {"lr": "2"}, None)], LOSS, ACCURACY)
    assert tradeoff(found, ranked(found)) is None
    assert parameter_figures(found, ranked(found)) == (
        [],
        ["Fewer than two configurations have finished with a val/loss."],
    )
    alone = contents([job("0", {"lr": "1"}, 0.5)])
    assert tradeoff(alone, ranked(alone)) is None
