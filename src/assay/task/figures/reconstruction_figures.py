"""What is shown of reconstructions: how large the errors are, and where samples lie in the latent space."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from assay.figure.figure import Bars, Figure
from assay.task.figures.embedding_figures import embedding_figures
from assay.task.score import bootstrapped

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from assay.task.prediction.predictions import Predictions
    from assay.task.score import Score

_NUM_BINS: Final = 24


def error_scores(predictions: Predictions) -> list[Score]:
    """The mean error of the samples, and the error below which half and 95 % of them lie.

    Args:
        predictions: Errors in the first column.
    """
    errors = _errors(predictions)
    if not len(errors):
        return []
    order = np.argsort(errors)
    ranked = errors[order]

    def statistic(weights: NDArray[Any]) -> dict[str, float]:
        share = np.cumsum(weights[order]) / weights.sum()
        quantiles = {name: ranked[np.searchsorted(share, at)] for name, at in _QUANTILES.items()}
        return {"error": float(weights @ errors / weights.sum()), **quantiles}

    return bootstrapped(statistic, len(errors))


_QUANTILES: Final = {"error, median": 0.5 - 1e-9, "error, 95 %": 0.95 - 1e-9}


def error_figures(predictions: Predictions) -> list[Figure]:
    """How the errors are distributed, and the latent vectors, projected.

    Args:
        predictions: Errors in the first column, latent vectors in the others.
    """
    errors = _errors(predictions)
    figures = []
    if len(errors):
        counts, edges = np.histogram(errors, _NUM_BINS)
        middles = [f"{(low + high) / 2:.3g}" for low, high in zip(edges[:-1], edges[1:], strict=True)]  # noqa: RUF007
        lost = len(predictions.outputs) - len(errors)
        caption = "Mean squared difference to the input, as the loss sees both."
        caption += f" {lost} errors are not finite and are left out." if lost else ""
        figures.append(
            Figure(
                "reconstruction_errors",
                "Distribution of the errors",
                (Bars("", middles, counts),),
                "error, middle of each bin",
                "samples",
                caption=caption,
            )
        )
    latent = embedding_figures(replace(predictions, outputs=predictions.outputs[:, 1:]))
    return [
        *figures,
        *(replace(one, name="latent", title="Latent vectors, projected by PCA") for one in latent),
    ]


def _errors(predictions: Predictions) -> NDArray[np.float64]:
    errors = predictions.outputs[:, 0].astype(float)
    finite: NDArray[np.float64] = errors[np.isfinite(errors)]
    return finite
