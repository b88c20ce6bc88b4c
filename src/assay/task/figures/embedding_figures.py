"""What is shown of embeddings and reconstructions: where samples lie, and how large errors are."""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, final

import numpy as np
from typing_extensions import override

from assay.figure.figure import Figure, Points
from assay.quoting import number_text
from assay.task.baseline_warnings import class_warnings, embedding_warnings
from assay.task.evaluator import Evaluator, bootstrapped, class_name, samples_of
from assay.task.figures.value_figures import histogram

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from assay.task.evaluator import Score
    from assay.task.prediction.predictions import StoredPredictions


_MOST_COLOURS: Final = 10
_MOST_NEIGHBOURS: Final = 10_000
"""Samples up to which each one's nearest neighbour is looked for."""


def embedding_figures(predictions: StoredPredictions) -> list[Figure]:
    """The two directions in which embeddings vary most, by scikit-learn's PCA."""
    from sklearn.decomposition import PCA  # type: ignore[import-untyped]  # it has no stubs

    outputs = predictions.outputs.astype(float)
    if len(outputs) < 3 or outputs.shape[1] < 2:
        return []
    if not np.isfinite(outputs).all() or (outputs == outputs[0]).all():
        return []
    projection = PCA(2, random_state=0)
    places = projection.fit_transform(outputs)
    share = projection.explained_variance_ratio_
    return [
        Figure(
            "embeddings",
            "Embeddings, projected by PCA",
            tuple(_clouds(places, predictions)),
            f"first component ({100 * share[0]:.0f} % of the variance)",
            f"second component ({100 * share[1]:.0f} %)",
            is_wide=True,
            caption="Samples that lie together here may lie apart in the directions that are not shown.",
        )
    ]


@functools.lru_cache(maxsize=1)  # asked for of each sample that is shown
def nearest_neighbours(predictions: StoredPredictions) -> NDArray[Any] | None:
    """Index of each sample's nearest other sample, int64 `[N]`; None of one sample or of too many."""
    from sklearn.neighbors import NearestNeighbors  # type: ignore[import-untyped]  # it has no stubs

    outputs = predictions.outputs
    if not 2 <= len(outputs) <= _MOST_NEIGHBOURS or not np.isfinite(outputs).all():
        return None
    # Without points to look up, each is compared with all others.
    found: NDArray[Any] = NearestNeighbors(n_neighbors=1).fit(outputs).kneighbors(return_distance=False)
    return found[:, 0]


def _clouds(places: NDArray[Any], predictions: StoredPredictions) -> list[Points]:
    """The most frequent classes have colours of their own."""
    keys, targets = predictions.keys, predictions.targets
    if targets is None:
        return [Points("", places[:, 0], places[:, 1], texts=keys)]
    labels, counts = np.unique(targets, return_counts=True)
    named = np.sort(labels[np.argsort(-counts, kind="stable")][:_MOST_COLOURS])
    groups = [(class_name(predictions, int(label)), np.flatnonzero(targets == label)) for label in named]
    if len(others := np.flatnonzero(~np.isin(targets, named))):
        groups.insert(0, (f"{len(labels) - len(named)} other classes", others))
    return [
        Points(
            name,
            places[chosen, 0],
            places[chosen, 1],
            texts=[f"{class_name(predictions, int(targets[index]))}\n{keys[index]}" for index in chosen],
        )
        for name, chosen in groups
    ]


_QUANTILES: Final = {"error, median": 0.5 - 1e-9, "error, 95 %": 0.95 - 1e-9}


def _errors(predictions: StoredPredictions) -> NDArray[np.float64]:
    errors = predictions.outputs[:, 0].astype(float)
    finite: NDArray[np.float64] = errors[np.isfinite(errors)]
    return finite


@final
class Embeddings(Evaluator):
    """Of vectors, judged by the class of each one's nearest neighbour."""

    @override
    def scores(self, predictions: StoredPredictions) -> list[Score]:
        """How often the nearest other sample is of the same class; of very many samples nothing."""
        found = self.is_right(predictions)
        if found is None:
            return []
        right = found.astype(float)
        return bootstrapped(lambda weights: {"recall@1": float(weights @ right / weights.sum())}, len(right))

    @override
    def figures(self, predictions: StoredPredictions) -> list[Figure]:
        return embedding_figures(predictions)

    @override
    def error_scores(self, predictions: StoredPredictions) -> NDArray[Any]:
        right = self.is_right(predictions)
        unknown = np.full(len(predictions.outputs), np.nan)
        return unknown if right is None else np.where(right, np.nan, 1.0)

    @override
    def hardest_caption(self, predictions: StoredPredictions) -> str:
        return "Those whose nearest neighbour is of another class."

    @override
    def is_right(self, predictions: StoredPredictions) -> NDArray[Any] | None:
        targets, nearest = predictions.targets, nearest_neighbours(predictions)
        return None if targets is None or nearest is None else targets[nearest] == targets

    @override
    def baseline_warnings(self, predictions: StoredPredictions) -> list[str]:
        targets, nearest = predictions.targets, nearest_neighbours(predictions)
        if targets is None or nearest is None:
            return []
        samples, names = samples_of(predictions), predictions.class_names
        return embedding_warnings(predictions.outputs, samples) or class_warnings(
            targets, targets[nearest], names, samples, "the nearest neighbour"
        )

    @override
    def predicted_label(self, predictions: StoredPredictions, index: int) -> str:
        targets, nearest = predictions.targets, nearest_neighbours(predictions)
        if targets is None:
            return ""
        target = class_name(predictions, int(targets[index]))
        other = target if nearest is None else class_name(predictions, int(targets[nearest[index]]))
        return target if other == target else f"{target}; its nearest is {other}"


@final
class Reconstructions(Evaluator):
    """Of the errors of reconstructions, and their latent vectors."""

    @override
    def scores(self, predictions: StoredPredictions) -> list[Score]:
        """The mean error of the samples, and the error below which half and 95 % of them lie."""
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

    @override
    def figures(self, predictions: StoredPredictions) -> list[Figure]:
        """How the errors are distributed, and the latent vectors, projected."""
        errors = _errors(predictions)
        figures = []
        if len(errors):
            lost = len(predictions.outputs) - len(errors)
            caption = "Mean squared difference to the input, as the loss sees both."
            caption += f" {lost} errors are not finite and are left out." if lost else ""
            title = "Distribution of the errors"
            figures.append(histogram("reconstruction_errors", title, errors, "error", caption=caption))
        latent = embedding_figures(replace(predictions, outputs=predictions.outputs[:, 1:]))
        return [
            *figures,
            *(replace(one, name="latent", title="Latent vectors, projected by PCA") for one in latent),
        ]

    @override
    def error_scores(self, predictions: StoredPredictions) -> NDArray[Any]:
        error = predictions.outputs[:, 0].astype(float)
        error_scores: NDArray[Any] = np.minimum(np.nan_to_num(error, nan=np.inf), np.finfo(float).max)
        return error_scores

    @override
    def hardest_caption(self, predictions: StoredPredictions) -> str:
        return "The largest error first. Left what was given, right what came back."

    @override
    def predicted_label(self, predictions: StoredPredictions, index: int) -> str:
        targets, error = predictions.targets, f"error {number_text(predictions.outputs[index, 0])}"
        return error if targets is None else f"{error}; is {class_name(predictions, int(targets[index]))}"
