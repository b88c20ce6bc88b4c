"""Scores and figures of predicted numbers, surprisal of tokens, embeddings and reconstructions."""

from __future__ import annotations

import functools
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, final

import numpy as np
from typing_extensions import override

from assay.figure import Bars, Figure, Line, Points
from assay.quoting import format_number
from assay.task.evaluator import (
    FEWEST,
    FEWEST_OTHERS,
    Evaluator,
    bootstrapped,
    class_name,
    class_warnings,
)
from assay.task.predictions import metric_keys

if TYPE_CHECKING:
    from collections.abc import Mapping

    from assay.figure import Array
    from assay.task.evaluator import Score
    from assay.task.predictions import StoredPredictions


_MOST_TARGETS = 4
_NUM_BINS = 24
_METRICS = {"r2": "R2", "mae": "MeanAbsoluteError", "rmse": "MeanSquaredError root"}
"""`Score.metric` of each score."""


def histogram(
    name: str,
    title: str,
    values: Array,
    label: str,
    unit: str = "samples",
    *,
    caption: str,
) -> Figure:
    """Draw how many values lie in each of several bins of equal width."""
    counts, edges = np.histogram(values, _NUM_BINS)
    middles = [format_number((low + high) / 2, 3) for low, high in pairwise(edges)]
    return Figure(
        name,
        title,
        (Bars("", middles, counts),),
        f"{label}, middle of each bin",
        unit,
        caption=caption,
    )


def _target_figures(
    number: str, name: str, preds: Array, true: Array, keys: tuple[str, ...]
) -> list[Figure]:
    finite = np.isfinite(preds)
    caption = ""
    if not finite.all():
        caption = f"{(~finite).sum()} predictions are not finite and are left out."
    preds = preds[finite]
    true = true[finite]
    keys = tuple(np.array(keys, dtype=object)[finite])
    if not len(preds):
        return []
    residuals = preds - true
    spread = f"Mean {format_number(residuals.mean())}, standard deviation {format_number(residuals.std())}."
    low = min(preds.min(), true.min())
    high = max(preds.max(), true.max())
    texts = [
        f"{key}\ntrue {format_number(t, 6)}\npredicted {format_number(s, 6)}"
        for key, t, s in zip(keys, true, preds, strict=True)
    ]
    diagonal = Line("", [low, high], [low, high], is_reference=True)
    zero = Line("", [preds.min(), preds.max()], [0, 0], is_reference=True)
    parity = (diagonal, Points("", true, preds, texts=texts))
    errors = (zero, Points("", preds, residuals, texts=texts))
    predicted = f"predicted {name}"
    error = "predicted - true"
    both = f"{spread} {caption}".strip()
    title = f"Predicted against true: {name}"
    of_errors = f"Distribution of the residuals: {name}"
    return [
        Figure(f"parity{number}", title, parity, f"true {name}", predicted, caption=caption),
        Figure(
            f"residuals{number}", f"Residuals: {name}", errors, predicted, error, caption=both
        ),
        histogram(f"residual_histogram{number}", of_errors, residuals, error, caption=caption),
    ]


@final
class Values(Evaluator):
    """Evaluates one or more numbers per sample."""

    caption = "Largest absolute error first; of several targets, in standard deviations."

    def __init__(self, predictions: StoredPredictions) -> None:
        super().__init__(predictions)
        num_targets = self.outputs.shape[1]
        if not self.names and num_targets == 1:
            self.names = ("target",)
        elif not self.names:
            self.names = tuple(f"target {index}" for index in range(num_targets))

    @property
    def _preds_and_targets(self) -> tuple[Array, Array]:
        return self.outputs.astype(float), self.targets.astype(float)

    @override
    def scores(self) -> list[Score]:
        """Return R², MAE and RMSE of each target; for several targets the mean R² first."""
        preds, true = self._preds_and_targets
        names = self.names
        error = np.abs(preds - true)
        squares = (preds - true) ** 2
        centred = np.where(np.ptp(true, axis=0) > 0, true - true.mean(0), 0)
        ends = [""]
        prefixes = [""]
        if len(names) > 1:
            ends = [f" of {name}" for name in names]
            prefixes = [f"{key}/" for key in metric_keys(names)]
        metrics = {"r2 (mean)": "R2"} | {
            f"{score}{end}": f"{prefix}{metric}"
            for end, prefix in zip(ends, prefixes, strict=True)
            for score, metric in _METRICS.items()
        }

        def statistic(weights: Array) -> Mapping[str, float]:
            total = weights.sum()
            lost = weights @ squares
            second = weights @ centred**2
            spread = second - (weights @ centred) ** 2 / total
            varies = spread > 1e-12 * second  # else it is the error of rounding
            # Of a target that does not vary as in scikit-learn.
            r2 = np.where(varies, 1 - lost / np.where(varies, spread, 1), lost == 0)
            r2 = np.where(len(true) > 1, r2, np.nan)
            scores = {}
            if len(names) > 1:
                scores = {"r2 (mean)": float(np.mean(r2))}
            for index, end in enumerate(ends[:_MOST_TARGETS]):
                scores[f"r2{end}"] = float(r2[index])
                scores[f"mae{end}"] = float(weights @ error[:, index] / total)
                scores[f"rmse{end}"] = float(np.sqrt(lost[index] / total))
            return scores

        return bootstrapped(statistic, len(true), metrics)

    @override
    def figures(self) -> list[Figure]:
        """Draw predicted against true values, and the residuals, of each target."""
        preds, true = self._preds_and_targets
        names = self.names
        figures: list[Figure] = []
        for index, name in enumerate(names[:_MOST_TARGETS]):
            number = ""
            if len(names) > 1:
                number = f"_{index}"
            figures += _target_figures(
                number, name, preds[:, index], true[:, index], self.predictions.keys
            )
        if len(names) > _MOST_TARGETS and figures:
            caption = (
                f"{figures[-1].caption} Shown: the first {_MOST_TARGETS} of {len(names)} targets."
            )
            figures[-1] = replace(figures[-1], caption=caption.strip())
        return figures

    @override
    def error_scores(self) -> Array:
        outputs, targets = self._preds_and_targets
        error = np.abs(outputs - targets)
        if targets.shape[1] > 1:  # in standard deviations, as units may differ
            spread = targets.std(0)
            error /= np.where(spread > 0, spread, 1)
        # values that are not finite have the largest error
        error = np.nan_to_num(error, nan=np.inf).max(1)
        return np.asarray(np.minimum(error, np.finfo(float).max))

    @override
    def baseline_warnings(self) -> list[str]:
        """Warn if one value is predicted for all samples, or the mean would have a smaller error."""
        preds, true = self._preds_and_targets
        names = self.names
        samples = self.samples
        messages = []
        for name, target, value in zip(names, true.T, preds.T, strict=True):
            of = ""
            if len(names) > 1:
                of = f" of {name!r}"
            spread = target.std()
            error = value - target
            middle = np.median(target)
            if (target != middle).sum() < FEWEST_OTHERS:
                continue
            if np.ptp(value) <= 1e-3 * spread:
                about = "about "
                if np.ptp(value) == 0:
                    about = ""
                constant = f"{about}{format_number(value.mean(), 5)}"
                messages.append(
                    f"the model predicts a value{of} of {constant} for each of {samples}"
                )
            elif (
                len(target) >= FEWEST
                and (error**2).mean() >= spread**2
                and np.abs(error).mean() >= np.abs(target - middle).mean()
            ):
                messages.append(
                    f"always predicting the mean{of} would be at least as good as the model on {samples} "
                    f"(R² {1 - (error**2).mean() / spread**2:.3g})"
                )
        return messages

    @override
    def predicted_label(self, index: int) -> str:
        targets = self.predictions.targets
        parts = []
        for column, value in enumerate(self.outputs[index]):
            part = format_number(value, 5)
            if len(self.names) > 1:
                part = f"{self.names[column]} {part}"
            if targets is not None:
                part += f" (is {format_number(targets[index, column], 5)})"
            parts.append(part)
        return "; ".join(parts)


@final
class Tokens(Evaluator):
    """Evaluates the surprisal of each token."""

    caption = "Highest mean surprisal first."

    @override
    def scores(self) -> list[Score]:
        """Return perplexity and bits; intervals resample windows, whose tokens are dependent."""
        bits = self.outputs.mean(1, dtype=float)

        def statistic(weights: Array) -> Mapping[str, float]:
            mean = float(weights @ bits / weights.sum())
            return {"perplexity": float(2**mean), "bits_per_token": mean}

        return bootstrapped(statistic, len(bits), {"perplexity": "Perplexity"})

    @override
    def figures(self) -> list[Figure]:
        """Draw the surprisal of tokens, and how it falls with the number of previous tokens."""
        bits = self.outputs.astype(float)
        curve = Line("", np.arange(1, bits.shape[1] + 1), bits.mean(0))
        name = "surprisal_by_position"
        title = "Surprisal by position in the window"
        helps = "Mean over all windows: how much a longer context helps the model."
        means = "1 bit: the token had a probability of 1/2; 10 bits: of 1/1024."
        return [
            Figure(name, title, (curve,), "tokens seen", "bits per token", caption=helps),
            histogram("surprisal", "Surprisal of tokens", bits, "bits", "tokens", caption=means),
        ]

    @override
    def error_scores(self) -> Array:
        return np.asarray(self.outputs.mean(1, dtype=float))

    @override
    def baseline_warnings(self) -> list[str]:
        """Warn if the same probabilities at each position would score as well."""
        counts = np.unique(self.targets, return_counts=True)[1]
        shares = counts / counts.sum()
        entropy = -(shares @ np.log2(shares))
        mean = self.outputs.mean(dtype=float)
        # With few tokens of each kind their shares are not those of the language.
        if counts.sum() < 10 * len(counts) or len(counts) < 2 or mean < entropy:
            return []
        return [
            f"the model needs {mean:.3f} bits per token of {self.samples}: not better than "
            f"giving each token its frequency there, whatever comes before it ({entropy:.3f})"
        ]

    @override
    def predicted_label(self, index: int) -> str:
        return f"{float(self.outputs[index].mean()):.2f} bits per token"


_MOST_COLOURS = 10
_MOST_NEIGHBOURS = 10_000
"""Most samples for which nearest neighbours are computed."""


def embedding_figures(predictions: StoredPredictions) -> list[Figure]:
    """Draw the two directions in which embeddings vary most, by scikit-learn's PCA."""
    from sklearn.decomposition import PCA  # type: ignore[import-untyped]  # it has no stubs

    outputs = predictions.outputs.astype(float)
    is_small = len(outputs) < 3 or outputs.shape[1] < 2
    if is_small or not np.isfinite(outputs).all() or (outputs == outputs[0]).all():
        return []
    projection = PCA(2, random_state=0)
    places = projection.fit_transform(outputs)
    first, second = 100 * projection.explained_variance_ratio_
    labels = (
        f"first component ({first:.0f} % of the variance)",
        f"second component ({second:.0f} %)",
    )
    points = tuple(_class_points(places, predictions))
    title = "Embeddings, projected by PCA"
    caption = "Samples that are close here may be far apart in directions that are not shown."
    return [Figure("embeddings", title, points, *labels, is_wide=True, caption=caption)]


@functools.lru_cache(maxsize=1)  # called for each sample that is shown
def nearest_neighbours(predictions: StoredPredictions) -> Array | None:
    """Return the index of each sample's nearest other sample, int64 `[N]`; None for one or too many."""
    from sklearn.neighbors import NearestNeighbors  # type: ignore[import-untyped]  # it has no stubs

    outputs = predictions.outputs
    if not 2 <= len(outputs) <= _MOST_NEIGHBOURS or not np.isfinite(outputs).all():
        return None
    # Without query points, each point is compared with all others.
    indices: Array = (
        NearestNeighbors(n_neighbors=1).fit(outputs).kneighbors(return_distance=False)
    )
    return indices[:, 0]


def _class_points(places: Array, predictions: StoredPredictions) -> list[Points]:
    """Group points by class; only the most frequent classes have their own colour."""
    keys = predictions.keys
    targets = predictions.targets
    if targets is None:
        return [Points("", places[:, 0], places[:, 1], texts=keys)]
    labels, counts = np.unique(targets, return_counts=True)
    named = np.sort(labels[np.argsort(-counts, kind="stable")][:_MOST_COLOURS])
    groups = [
        (class_name(predictions, int(label)), np.flatnonzero(targets == label)) for label in named
    ]
    if len(remaining := np.flatnonzero(~np.isin(targets, named))):
        groups.insert(0, (f"{len(labels) - len(named)} other classes", remaining))
    return [
        Points(
            name,
            places[chosen, 0],
            places[chosen, 1],
            texts=[
                f"{class_name(predictions, int(targets[index]))}\n{keys[index]}"
                for index in chosen
            ],
        )
        for name, chosen in groups
    ]


_QUANTILES = {"error, median": 0.5 - 1e-9, "error, 95 %": 0.95 - 1e-9}


@final
class Embeddings(Evaluator):
    """Evaluates vectors by the class of each one's nearest neighbour."""

    caption = "Samples whose nearest neighbour is of another class."

    @override
    def scores(self) -> list[Score]:
        """Return how often the nearest other sample has the same class; nothing for too many samples."""
        is_right = self.is_right()
        if is_right is None:
            return []
        right = is_right.astype(float)

        def statistic(weights: Array) -> Mapping[str, float]:
            return {"recall@1": float(weights @ right / weights.sum())}

        return bootstrapped(
            statistic, len(right), {"recall@1": "RecallAtK"}, {"recall@1": is_right}
        )

    @override
    def figures(self) -> list[Figure]:
        return embedding_figures(self.predictions)

    @override
    def error_scores(self) -> Array:
        right = self.is_right()
        if right is None:
            return super().error_scores()
        return np.where(right, np.nan, 1.0)

    @override
    def is_right(self) -> Array | None:
        targets = self.predictions.targets
        nearest = nearest_neighbours(self.predictions)
        return None if targets is None or nearest is None else targets[nearest] == targets

    @override
    def baseline_warnings(self) -> list[str]:
        targets = self.predictions.targets
        nearest = nearest_neighbours(self.predictions)
        if targets is None or nearest is None:
            return []
        samples = self.samples
        outputs = self.outputs
        if (
            len(outputs) >= FEWEST_OTHERS
            and np.ptp(outputs, 0).max() <= 1e-6 * np.abs(outputs).max()
        ):
            return [f"the model gives each of {samples} the same embedding"]
        return class_warnings(
            targets, targets[nearest], self.names, samples, "the nearest neighbour"
        )

    @override
    def predicted_label(self, index: int) -> str:
        targets = self.predictions.targets
        nearest = nearest_neighbours(self.predictions)
        if targets is None:
            return ""
        target = class_name(self.predictions, int(targets[index]))
        if nearest is None or targets[nearest[index]] == targets[index]:
            return target
        neighbour = class_name(self.predictions, int(targets[nearest[index]]))
        return f"{target}; its nearest is {neighbour}"


@final
class Reconstructions(Evaluator):
    """Evaluates the errors of reconstructions, and their latent vectors."""

    caption = "Largest error first. Left: the input; right: its reconstruction."

    @property
    def _finite_errors(self) -> Array:
        errors = self.outputs[:, 0].astype(float)
        return np.asarray(errors[np.isfinite(errors)])

    @override
    def scores(self) -> list[Score]:
        """Return the mean error of the samples, its median and its 95 % quantile."""
        errors = self._finite_errors
        if not len(errors):
            return []
        order = np.argsort(errors)
        ranked = errors[order]

        def statistic(weights: Array) -> dict[str, float]:
            share = np.cumsum(weights[order]) / weights.sum()
            quantiles = {
                name: ranked[np.searchsorted(share, level)] for name, level in _QUANTILES.items()
            }
            return {"error": float(weights @ errors / weights.sum()), **quantiles}

        return bootstrapped(statistic, len(errors))

    @override
    def figures(self) -> list[Figure]:
        """Draw the distribution of the errors, and the projected latent vectors."""
        errors = self._finite_errors
        figures = []
        if len(errors):
            lost = len(self.outputs) - len(errors)
            caption = "Mean squared difference to the input, as the loss sees both."
            if lost:
                caption += f" {lost} errors are not finite and are left out."
            title = "Distribution of the errors"
            figures.append(
                histogram("reconstruction_errors", title, errors, "error", caption=caption)
            )
        latent = embedding_figures(replace(self.predictions, outputs=self.outputs[:, 1:]))
        title = "Latent vectors, projected by PCA"
        return figures + [replace(figure, name="latent", title=title) for figure in latent]

    @override
    def error_scores(self) -> Array:
        error = self.outputs[:, 0].astype(float)
        return np.asarray(np.minimum(np.nan_to_num(error, nan=np.inf), np.finfo(float).max))

    @override
    def predicted_label(self, index: int) -> str:
        targets = self.predictions.targets
        error = f"error {format_number(self.outputs[index, 0])}"
        if targets is None:
            return error
        return f"{error}; is {class_name(self.predictions, int(targets[index]))}"
