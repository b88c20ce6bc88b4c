from __future__ import annotations

import numpy as np
import pytest

from assay.task.figures.value_figures import token_figures, token_scores
from assay.task.prediction.predictions import Predictions

BITS = np.random.default_rng(0).exponential(2.0, (40, 6)).astype(np.float32)
MADE = Predictions(
    "language_modelling", "surprisals", tuple(map(str, range(40))), BITS, BITS.astype(np.int64), ()
)


def test_scores_are_over_all_tokens() -> None:
    perplexity, bits = token_scores(MADE)
    assert (perplexity.name, bits.name) == ("perplexity", "bits_per_token")
    assert bits.value == pytest.approx(BITS.mean(), rel=1e-6)
    assert perplexity.value == pytest.approx(2 ** BITS.mean(), rel=1e-6)
    assert bits.low < bits.value < bits.high


def test_figures_count_each_token_once() -> None:
    by_position, histogram = token_figures(MADE)
    assert np.allclose(by_position.marks[0].y, BITS.mean(0), rtol=1e-6)  # type: ignore[union-attr]  # a line
    assert sum(histogram.marks[0].values) == BITS.size  # type: ignore[union-attr]  # bars


def test_certain_tokens_have_figures() -> None:
    none = Predictions(MADE.task, MADE.kind, MADE.keys, BITS * 0, MADE.targets, ())
    assert sum(token_figures(none)[1].marks[0].values) == BITS.size  # type: ignore[union-attr]  # bars
