"""What is shown of the surprisal of tokens."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from assay.figure.figure import Bars, Figure, Line
from assay.task.score import bootstrapped

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from assay.task.prediction.predictions import Predictions
    from assay.task.score import Score

_MOST_BINS: Final = 24


def token_scores(predictions: Predictions) -> list[Score]:
    """Perplexity and bits per token; intervals are over windows, as the tokens of one depend on each other.

    Args:
        predictions: Surprisals `[N, L]`.
    """
    bits = predictions.outputs.mean(1, dtype=float)

    def statistic(weights: NDArray[Any]) -> Mapping[str, float]:
        mean = float(weights @ bits / weights.sum())
        return {"perplexity": float(2**mean), "bits_per_token": mean}

    return bootstrapped(statistic, len(bits))


def token_figures(predictions: Predictions) -> list[Figure]:
    """How surprising tokens are, and how much that falls with the tokens that were seen before.

    Args:
        predictions: Surprisals `[N, L]`.
    """
    bits = predictions.outputs.astype(float)
    by_position = bits.mean(0)
    highest = int(np.ceil(bits.max(initial=1.0)))
    edges = np.linspace(0, highest, 1 + min(_MOST_BINS, highest))
    counts, _ = np.histogram(bits, edges)
    return [
        Figure(
            "surprisal_by_position",
            "Surprisal by position in the window",
            (Line("", np.arange(1, len(by_position) + 1), by_position),),
            "tokens seen",
            "bits per token",
            caption="The mean over all windows: what more of the text before a token is worth to the model.",
        ),
        Figure(
            "surprisal",
            "Surprisal of tokens",
            (Bars("", [f"{low:.3g}–{high:.3g}" for low, high in pairwise(edges)], counts),),
            "bits",
            "tokens",
            caption="Of 1 bit, a token had a probability of 1/2; of 10 bits, of 1/1024.",
        ),
    ]
