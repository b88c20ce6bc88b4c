"""Curves of yes-or-no decisions: ROC, precision and recall, calibration."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, final

import numpy as np

from assay.figure.figure import Bars, Figure, Line

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

NUM_BINS: Final = 15
"""Of equal width, as in Guo et al. 2017, "On Calibration of Modern Neural Networks"."""
_WHOLE: Final = (-0.02, 1.02)


_MOST_DECISIONS: Final = 100_000
"""Decisions whose order is asked of each draw; more take longer than a reader waits."""


@final
class Ranking:
    """AUROC and average precision of weighted samples, sorted once, for each of several decisions.

    Args:
        scores: How much the model says so, `[N, C]`.
        positive: Whether it is so, bool `[N, C]`.
    """

    def __init__(self, scores: NDArray[Any], positive: NDArray[Any]) -> None:
        self._order = np.argsort(-scores.T, axis=1, kind="stable")
        self._positive = np.take_along_axis(positive.T, self._order, 1)
        values = np.take_along_axis(scores.T, self._order, 1)
        last_that_ties = np.ones(values.shape, bool)
        last_that_ties[:, :-1] = values[:, 1:] != values[:, :-1]
        self._ends = np.flatnonzero(last_that_ties)  # of samples that tie, one decision after the other
        self._begins = np.searchsorted(self._ends, np.arange(len(values)) * values.shape[1])

    def scores(self, weights: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
        """AUROC and average precision, as scikit-learn defines them; NaN without samples of both kinds.

        Args:
            weights: Of each sample, `[N]`.

        Returns:
            Both of each decision, `[C]`.
        """
        ordered = weights[self._order]
        true = np.cumsum(ordered * self._positive, 1).ravel()[self._ends]
        both = np.cumsum(ordered, 1).ravel()[self._ends]
        false = both - true
        all_true, all_false = (sums[np.append(self._begins[1:], 0) - 1] for sums in (true, false))
        new_true, new_false = self._steps(true), self._steps(false)
        with np.errstate(divide="ignore", invalid="ignore"):
            areas = np.add.reduceat(new_false * (true - new_true / 2), self._begins) / (all_true * all_false)
            parts = np.where(both > 0, new_true * true / both, 0)
            return areas, np.add.reduceat(parts, self._begins) / all_true

    def _steps(self, sums: NDArray[Any]) -> NDArray[Any]:
        """By how much each sum is more than the one before it."""
        steps = np.diff(sums, prepend=0)
        steps[self._begins] = sums[self._begins]
        return steps


def mean_auroc(scores: NDArray[Any], positive: NDArray[Any]) -> Callable[[NDArray[Any]], float]:
    """Unweighted mean of the AUROC of several decisions, such as one class against the rest.

    Args:
        scores: How much the model says so, `[N, C]`.
        positive: Whether it is so, bool `[N, C]`; columns of one kind alone are left out.

    Returns:
        From the weights of the samples to the mean; NaN where there is none, and of weighted samples where
        there are so many that their interval would take long.
    """
    kinds = np.flatnonzero(positive.any(0) & ~positive.all(0))
    at_once = max(1, _MOST_DECISIONS // max(1, len(scores)))  # more take much memory
    some = [kinds[begin : begin + at_once] for begin in range(0, len(kinds), at_once)]
    rankings = [Ranking(scores[:, columns], positive[:, columns]) for columns in some]

    def mean(weights: NDArray[Any]) -> float:
        if not rankings or (positive.size > _MOST_DECISIONS and (weights != 1).any()):
            return float("nan")
        areas = np.concatenate([ranking.scores(weights)[0] for ranking in rankings])
        return float(np.nanmean(areas)) if np.isfinite(areas).any() else float("nan")

    return mean


def ranking_figures(
    decisions: Sequence[tuple[str, NDArray[Any], NDArray[Any]]], shown: str = ""
) -> list[Figure]:
    """ROC and precision-recall curves, by scikit-learn.

    Args:
        decisions: Name, whether each sample is one, bool `[N]`, and how much the model says so, `[N]`.
        shown: Which these are, where there are more.
    """
    from sklearn.metrics import (  # type: ignore[import-untyped]  # it has no stubs
        auc,
        average_precision_score,
        precision_recall_curve,
        roc_curve,
    )

    roc, recall = [], []
    for name, truth, scores in decisions:
        if truth.all() or not truth.any():  # no curve is defined
            continue
        false, true, _ = roc_curve(truth, scores)
        roc.append(Line(f"{name} ({auc(false, true):.3f})", false, true))
        precision, hit, _ = precision_recall_curve(truth, scores)
        told = f"{name} ({average_precision_score(truth, scores):.3f})"
        recall.append(Line(told, hit, precision, is_step=True))
    left_out = len(decisions) - len(roc)
    captions = [f"Shown are {shown}."] if shown else []
    if left_out:
        captions.append(f"{left_out} without samples of both kinds are left out.")
    if not roc:
        return []
    return [
        Figure(
            "roc",
            "ROC",
            (Line("", [0, 1], [0, 1], is_reference=True), *roc),
            "false positive rate",
            "true positive rate",
            x_range=_WHOLE,
            y_range=_WHOLE,
            caption=" ".join([_in_brackets(roc, "area below the curve"), *captions]),
        ),
        Figure(
            "precision_recall",
            "Precision and recall",
            tuple(recall),
            "recall",
            "precision",
            x_range=_WHOLE,
            y_range=_WHOLE,
            caption=" ".join([_in_brackets(recall, "average precision"), *captions]),
        ),
    ]


def calibration_error(chances: NDArray[Any], truth: NDArray[Any], weights: NDArray[Any]) -> float:
    """Expected calibration error: mean distance of chance and frequency over bins, by their samples.

    Args:
        chances: From 0 to 1, `[N]`.
        truth: Whether it was so, bool `[N]`.
        weights: Of each sample, `[N]`.
    """
    bins = _bins(chances)
    gap = np.bincount(bins, weights * (truth - chances), NUM_BINS)
    return float(np.abs(gap).sum() / weights.sum())


def calibration(
    chances: NDArray[Any], truth: NDArray[Any], what: str, kinds: tuple[str, str] = ("right", "wrong")
) -> list[Figure]:
    """Reliability diagram, and how sure the model was of what was so and of what was not.

    Args:
        chances: From 0 to 1, `[N]`.
        truth: Whether it was so, bool `[N]`.
        what: Of what they are the chances.
        kinds: What samples are called of which it was so, and of which it was not.
    """
    bins = _bins(chances)
    count = np.bincount(bins, minlength=NUM_BINS)
    used = count > 0
    mean, share = (np.bincount(bins, of, NUM_BINS)[used] / count[used] for of in (chances, truth))
    error = calibration_error(chances, truth, np.ones(len(chances)))
    low, high = _wilson(share, count[used])
    ends = [f"{edge / NUM_BINS:.2f}" for edge in range(NUM_BINS + 1)]
    labels = [f"{begin}-{end}" for begin, end in zip(ends[:-1], ends[1:], strict=True)]  # noqa: RUF007 - equal
    so = np.asarray(truth, dtype=bool)
    groups = zip(kinds, (so, ~so), strict=True)
    return [
        Figure(
            "calibration",
            "Calibration",
            (
                Line("", [0, 1], [0, 1], is_reference=True),
                Line("model", mean, share, low=low, high=high),
            ),
            f"predicted probability {what}",
            "how often it was so",
            x_range=_WHOLE,
            y_range=_WHOLE,
            caption=f"Expected calibration error {error:.4f}, over {NUM_BINS} bins of equal width. The "
            "band is Wilson's 95 % interval of each bin.",
        ),
        Figure(
            "confidence",
            "How sure the model was",
            tuple(Bars(name, labels, np.bincount(bins[of], minlength=NUM_BINS)) for name, of in groups),
            f"predicted probability {what}",
            "samples",
        ),
    ]


def _bins(chances: NDArray[Any]) -> NDArray[Any]:
    bins: NDArray[Any] = np.clip((chances * NUM_BINS).astype(int), 0, NUM_BINS - 1)
    return bins


def _wilson(share: NDArray[Any], count: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Interval of a frequency (Wilson 1927), which holds for few samples and near 0 and 1."""
    z = 1.959964
    middle = (share + z**2 / (2 * count)) / (1 + z**2 / count)
    half = z / (1 + z**2 / count) * np.sqrt(share * (1 - share) / count + z**2 / (4 * count**2))
    return middle - half, middle + half


def _in_brackets(lines: Sequence[Line], what: str) -> str:
    """A line that is alone has no legend, so that its name and number stand here."""
    return f"{lines[0].name}, in brackets: the {what}." if len(lines) == 1 else f"In brackets: the {what}."
