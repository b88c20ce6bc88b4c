"""Which parameters matter: permutation importance of a random forest (Breiman, Machine Learning 45, 2001)."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

import numpy as np

from assay.quoting import reads_as_number

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

LEAST: Final = 10
"""Configurations below which a forest over them says nothing."""
_FOLDS, _SHUFFLES = 5, 5
_MOST: Final = 2000


def importance(
    configurations: Sequence[Mapping[str, str]], scores: Sequence[float]
) -> tuple[list[tuple[str, float]], str]:
    """The share of the score's variance that a forest can no longer predict without each parameter.

    Measured in five folds, on configurations that the forest has not seen. Parameters that go together share
    what they explain.

    Args:
        configurations: Values by key; in any order.
        scores: Of each.

    Returns:
        Parameters and their shares, the largest first; and what is to be said of them, which is all where
        there are none.
    """
    if len(scores) < LEAST:
        return [], f"{len(scores)} finished configurations are too few: at least {LEAST} are needed."
    texts = {
        key: [own.get(key, "") for own in configurations] for key in sorted(set().union(*configurations))
    }
    columns = {key: _codes(own) for key, own in texts.items() if len(set(own)) > 1}
    if not columns or len(set(scores)) < 2:
        return [], "All finished configurations have the same score."
    from sklearn.ensemble import RandomForestRegressor  # type: ignore[import-untyped]  # it has no stubs
    from sklearn.inspection import permutation_importance  # type: ignore[import-untyped]  # it has no stubs
    from sklearn.model_selection import KFold  # type: ignore[import-untyped]  # it has no stubs

    table = np.array([*columns.values(), scores], dtype=float)
    table = table[:, np.lexsort(table)].T  # what is drawn depends on no order but this
    table = table[np.unique(np.linspace(0, len(table) - 1, min(len(table), _MOST)).round().astype(int))]
    inputs, target = table[:, :-1], table[:, -1]
    drops, unexplained = np.zeros(len(columns)), 0.0
    for seen, unseen in KFold(_FOLDS, shuffle=True, random_state=0).split(inputs):
        forest = RandomForestRegressor(n_estimators=64, random_state=0).fit(inputs[seen], target[seen])
        missed = forest.predict(inputs[unseen]) - target[unseen]
        unexplained += float(np.square(missed).sum())
        measured = permutation_importance(
            forest,
            inputs[unseen],
            target[unseen],
            scoring="neg_mean_squared_error",
            n_repeats=_SHUFFLES,
            random_state=0,
        )
        drops += measured.importances_mean * len(unseen)
    variance = float(np.square(target - target.mean()).sum())
    explained = 1 - unexplained / variance
    if explained <= 0:
        return [], (
            f"Learnt from {len(target)} configurations, a forest cannot tell the score of others by their "
            "parameters, so it cannot say which matter."
        )
    shares = [(key, max(0.0, float(drop / variance))) for key, drop in zip(columns, drops, strict=True)]
    message = (
        f"From {len(target)} configurations, so rough. A random forest explains {100 * explained:.0f} % of "
        "the variance of scores that it has not seen (five folds); a bar says how much more of it is missed "
        "when the values of this parameter are shuffled."
    )
    return sorted(shares, key=lambda share: (-share[1], share[0])), message


def _codes(texts: Sequence[str]) -> list[float]:
    """A number each: words are numbered in alphabetical order."""
    if all(reads_as_number(text) and math.isfinite(float(text)) for text in texts):
        return [float(text) for text in texts]
    words = sorted(set(texts))
    return [float(words.index(text)) for text in texts]
