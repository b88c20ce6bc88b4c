"""Means of repetitions, how sure they are, and whether two of them differ."""

from __future__ import annotations

import itertools
import math
import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, final

from assay.record.runs.student_t import p_value, quantile

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

LEVEL: Final = 0.95
"""Of the intervals; differences with p < 1 - LEVEL are called more than noise."""
WELCH: Final = "Welch's t-test"
PAIRED_TEST: Final = "corrected resampled t-test"
"""Names of the tests in what is said."""


@final
@dataclass(frozen=True)
class Mean:
    """The mean of a score over repetitions.

    Attributes:
        values: The scores, each finite.
        mean: Their mean.
        std: Standard deviation, with n - 1; None for one value.
        low: Lower end of the 95 % interval, by Student's t: mean - t(0.975, n - 1) · std / √n; None for one.
        high: Its upper end.
        folds: Of each value, where there are several; empty otherwise.
    """

    values: tuple[float, ...]
    mean: float
    std: float | None = None
    low: float | None = None
    high: float | None = None
    folds: tuple[int | None, ...] = ()

    @property
    def n(self) -> int:
        """How many values."""
        return len(self.values)

    @property
    def half_width(self) -> float | None:
        """Of the interval."""
        return None if self.high is None else self.high - self.mean


def mean_of(scores: Iterable[float | None], folds: Iterable[int | None] = ()) -> Mean | None:
    """The mean and its 95 % interval, as `scipy.stats.t.interval` gives it.

    Seeds of one fold are tested on the same samples and do not count as so many tests: where there are
    several folds, their means are averaged, and n is the number of folds. Folds share samples to train on, so
    that the interval is rather too narrow still (Bengio and Grandvalet, "No Unbiased Estimator of the
    Variance of K-Fold Cross-Validation", JMLR 2004).

    Args:
        scores: Of repetitions; those that are missing, nan or infinite are left out.
        folds: Of each; empty, or None for one without folds.

    Returns:
        None where none is left.

    >>> one = mean_of([0.5, 0.6, 0.7, None])
    >>> round(one.mean, 3), round(one.low, 3), round(one.high, 3)
    (0.6, 0.352, 0.848)
    """
    of_fold: dict[int | None, list[float]] = {}
    for score, fold in itertools.zip_longest(scores, folds):
        if score is not None and math.isfinite(score):
            of_fold.setdefault(fold, []).append(score)
    values = next(iter(of_fold.values()), [])
    if len(of_fold) > 1:
        values = [math.fsum(own) / len(own) for own in of_fold.values()]
    if not values:
        return None
    mean = math.fsum(values) / len(values)
    if len(values) < 2:
        return Mean(tuple(values), mean)
    std = statistics.stdev(values)
    half = quantile(LEVEL, len(values) - 1) * std / math.sqrt(len(values))
    folds_of = tuple(of_fold) if len(of_fold) > 1 else ()
    return Mean(tuple(values), mean, std, mean - half, mean + half, folds_of)


def same_folds(one: Mean, other: Mean) -> bool:
    """Whether both are means over the same folds, so that their values go together in pairs."""
    return len(one.folds) > 1 and set(one.folds) == set(other.folds)


def corrected_resampled(one: Mean, other: Mean) -> float | None:
    """The p-value of the corrected resampled t-test, two-sided (Nadeau and Bengio 2003), over the same folds.

    A t-test of the differences by fold, whose variance is multiplied by 1/k + 1/(k - 1) in place of 1/k, as
    any two of k folds have most of their training samples in common.

    Args:
        one: Of a configuration.
        other: Of another one, over the same folds.

    Returns:
        None where the differences do not vary: nothing can be said then.
    """
    second = dict(zip(other.folds, other.values, strict=True))
    differences = [value - second[fold] for fold, value in zip(one.folds, one.values, strict=True)]
    k, variance = len(differences), statistics.variance(differences)
    if variance == 0.0:
        return None
    return p_value(statistics.fmean(differences) / math.sqrt(variance * (1 / k + 1 / (k - 1))), k - 1)


def welch(one: Sequence[float], other: Sequence[float]) -> float | None:
    """The p-value of Welch's t-test, two-sided, as `scipy.stats.ttest_ind(equal_var=False)` gives it.

    Returns:
        None where there are too few values, or none of them varies: nothing can be said then.
    """
    if min(len(one), len(other)) < 2:
        return None
    errors = [statistics.variance(values) / len(values) for values in (one, other)]
    total = sum(errors)
    if total == 0.0:
        return None
    t = (statistics.fmean(one) - statistics.fmean(other)) / math.sqrt(total)
    shares = ((error / total) ** 2 / (len(own) - 1) for error, own in zip(errors, (one, other), strict=True))
    return p_value(t, 1 / sum(shares))
