from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from sklearn import metrics  # type: ignore[import-untyped]  # it has no stubs
from tests.task.made_predictions import of_values

from assay.figure.figure import Points
from assay.task.figures.value_figures import value_figures, value_scores


def test_scores_are_scikit_learns() -> None:
    said = of_values(2)
    assert said.targets is not None
    outputs, targets = said.outputs.astype(float), said.targets.astype(float)
    ours = {score.name: score.value for score in value_scores(said)}
    assert ours["r2 (mean)"] == pytest.approx(metrics.r2_score(targets, outputs))
    assert ours["r2 of t1"] == pytest.approx(metrics.r2_score(targets[:, 1], outputs[:, 1]))
    assert ours["mae of t0"] == pytest.approx(metrics.mean_absolute_error(targets[:, 0], outputs[:, 0]))
    rmse = metrics.root_mean_squared_error(targets[:, 0], outputs[:, 0])
    assert ours["rmse of t0"] == pytest.approx(rmse)


def test_figures_show_each_sample() -> None:
    said = of_values()
    assert said.targets is not None
    drawn = {figure.name: figure for figure in value_figures(said)}
    parity, residuals = (drawn[name].marks[1] for name in ("parity", "residuals"))
    assert isinstance(parity, Points)
    assert isinstance(residuals, Points)
    assert np.array_equal(parity.x, said.targets[:, 0])
    assert np.array_equal(parity.y, said.outputs[:, 0])
    assert residuals.y == pytest.approx(said.outputs[:, 0].astype(float) - said.targets[:, 0])


def test_what_is_not_finite_is_left_out_and_said() -> None:
    said = of_values()
    outputs = said.outputs.copy()
    outputs[:3] = np.nan
    parity = value_figures(replace(said, outputs=outputs))[0]
    assert parity.caption.startswith("3 predictions are not finite")
    assert np.isnan(value_scores(replace(said, outputs=outputs))[0].value)
