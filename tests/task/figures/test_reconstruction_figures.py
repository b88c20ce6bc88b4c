"""Scores and figures of reconstruction errors, against numpy."""

from __future__ import annotations

import numpy as np
import pytest

from assay.figure.figure import Bars, Points
from assay.task.figures.embedding_figures import error_figures, error_scores
from assay.task.prediction.predictions import Predictions


def made(errors: np.ndarray, *, latent: int = 3, labels: bool = True) -> Predictions:
    generator = np.random.default_rng(0)
    outputs = np.concatenate([errors[:, None], generator.normal(size=(len(errors), latent))], 1)
    targets = np.arange(len(errors)) % 2 if labels else None
    return Predictions(
        "reconstruction",
        "reconstructions",
        tuple(map(str, range(len(errors)))),
        outputs.astype(np.float32),
        targets,
        ("cat", "dog") if labels else (),
    )


def test_scores_are_quantiles() -> None:
    errors = np.random.default_rng(1).exponential(size=101)
    scores = {one.name: one for one in error_scores(made(errors))}
    assert scores["error"].value == pytest.approx(errors.mean(), rel=1e-5)
    assert scores["error, median"].value == pytest.approx(np.quantile(errors, 0.5), rel=1e-5)
    assert scores["error, 95 %"].value == pytest.approx(np.quantile(errors, 0.95), rel=1e-5)
    assert all(one.low <= one.value <= one.high for one in scores.values())


def test_figures_with_and_without_labels() -> None:
    errors = np.linspace(0, 1, 40)
    histogram, latent = error_figures(made(errors))
    (bars,) = histogram.marks
    assert isinstance(bars, Bars)
    assert sum(bars.values) == 40
    assert {one.name for one in latent.marks if isinstance(one, Points)} == {"cat", "dog"}
    assert len(error_figures(made(errors, labels=False))[1].marks) == 1
    assert [one.name for one in error_figures(made(errors, latent=0))] == ["reconstruction_errors"]


def test_errors_that_are_not_finite() -> None:
    (histogram,) = error_figures(made(np.array([1.0, np.nan, 2.0]), latent=0))
    assert "1 errors are not finite" in histogram.caption
