"""Means of repetitions, their intervals, whether two differ, and which parameters matter."""

from __future__ import annotations

import bisect
import functools
import itertools
import math
import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, final

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence


LEVEL: Final = 0.95
"""Of the intervals; differences with p < 1 - LEVEL are called more than noise."""
WELCH: Final = "Welch's t-test"
PAIRED: Final = "paired t-test"
OVER_FOLDS: Final = "corrected resampled t-test"
"""Names of the tests in messages."""


@final
@dataclass(frozen=True)
class Mean:
    """The mean of a score over repetitions.

    Attributes:
        values: That it is the mean of: one of each run, or of each fold.
        mean: Of them.
        n: How many.
        std: Standard deviation; null of one value.
        low: Lower end of the 95 % interval of the mean (Student's t); null of one value.
        high: Upper end.
        folds: Of each value, where there are several.
    """

    values: tuple[float, ...]
    mean: float
    n: int
    std: float | None = None
    low: float | None = None
    high: float | None = None
    folds: tuple[int | None, ...] = ()

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
    """
    of_fold: dict[int | None, list[float]] = {}
    for score, fold in itertools.zip_longest(scores, folds):
        if score is not None and math.isfinite(score):
            of_fold.setdefault(fold, []).append(score)
    values = next(iter(of_fold.values()), [])
    if len(of_fold) > 1:
        values = [math.fsum(scores_of_fold) / len(scores_of_fold) for scores_of_fold in of_fold.values()]
    if not values:
        return None
    mean = math.fsum(values) / len(values)
    if len(values) < 2:
        return Mean(tuple(values), mean, 1)
    std = statistics.stdev(values)
    half = quantile(LEVEL, len(values) - 1) * std / math.sqrt(len(values))
    folds_of = tuple(of_fold) if len(of_fold) > 1 else ()
    return Mean(tuple(values), mean, len(values), std, mean - half, mean + half, folds_of)


def have_same_folds(first: Mean, second: Mean) -> bool:
    """Whether both are means over the same folds, so that their values go together in pairs."""
    return len(first.folds) > 1 and set(first.folds) == set(second.folds)


@final
@dataclass(frozen=True)
class Gap:
    """A difference of two means, and what its t-test needs; `pairs` is 0 where there are none."""

    test: str
    difference: float
    error: float
    freedom: float
    pairs: int = 0

    @property
    def p_value(self) -> float:
        """Two-sided, of Student's t-test."""
        from scipy.special import stdtr  # type: ignore[import-untyped]  # scipy has no types

        return float(2 * stdtr(self.freedom, -abs(self.difference / self.error)))

    @property
    def half_width(self) -> float:
        """Of the 95 % interval of the difference."""
        return quantile(LEVEL, self.freedom) * self.error


def fold_gap(first: Mean, baseline: Mean) -> Gap | None:
    """The difference over the same folds, for the corrected resampled t-test (Nadeau and Bengio 2003).

    A t-test of the differences by fold, whose variance is multiplied by 1/k + 1/(k - 1) in place of 1/k, as
    any two of k folds have most of their training samples in common.
    """
    by_fold = dict(zip(baseline.folds, baseline.values, strict=True))
    differences = [value - by_fold[fold] for fold, value in zip(first.folds, first.values, strict=True)]
    return paired_gap(differences, OVER_FOLDS, 1 / (len(differences) - 1))


def paired_gap(differences: Sequence[float], test: str = PAIRED, overlap: float = 0.0) -> Gap | None:
    """The mean of differences of pairs, as `scipy.stats.ttest_rel` takes it."""
    n, mean, std = len(differences), statistics.fmean(differences), statistics.stdev(differences)
    # Differences that are the same but for rounding do not say how much others would vary.
    return Gap(test, mean, std * math.sqrt(1 / n + overlap), n - 1, n) if std > 1e-12 * abs(mean) else None


def welch_gap(a: Sequence[float], b: Sequence[float]) -> Gap | None:
    """The difference of two means, as `scipy.stats.ttest_ind(equal_var=False)` takes it."""
    errors = [statistics.variance(values) / len(values) for values in (a, b) if len(values) > 1]
    total = sum(errors)
    if len(errors) < 2 or total == 0.0:
        return None
    shares = ((error / total) ** 2 / (len(group) - 1) for error, group in zip(errors, (a, b), strict=True))
    return Gap(WELCH, statistics.fmean(a) - statistics.fmean(b), math.sqrt(total), 1 / sum(shares))


POWER: Final = 0.8
"""Share of cases in which a difference that is there is to be told."""
_MOST_PAIRS: Final = 2000


def count_pairs(difference: float, std: float, level: float = 1 - LEVEL) -> int:
    """How many pairs a two-sided paired t-test needs to tell a difference with a power of 80 %.

    Args:
        difference: Of the means, as it is in truth.
        std: Standard deviation of the differences of pairs.
        level: Of the test.
    """
    from scipy.special import nctdtr, stdtrit

    def power(n: int) -> float:
        return float(1 - nctdtr(n - 1, abs(difference) / std * math.sqrt(n), stdtrit(n - 1, 1 - level / 2)))

    return 2 + bisect.bisect_left(range(2, _MOST_PAIRS), POWER, key=power)


@functools.cache
def quantile(level: float, freedom: float) -> float:
    """The value such that one lies between it and its negative with a probability."""
    from scipy.special import stdtrit

    return float(stdtrit(freedom, (1 + level) / 2))


LEAST: Final = 10
"""Configurations that a measure of importance needs."""


def importance(
    configurations: Sequence[Mapping[str, str | None]], scores: Sequence[float]
) -> tuple[list[tuple[str, float]], str]:
    """Each parameter's permutation importance for a random forest, as a share of their sum."""
    if len(scores) < LEAST:
        return [], f"{len(scores)} finished configurations are too few: at least {LEAST} are needed."
    import pandas as pd
    from sklearn.ensemble import RandomForestRegressor  # type: ignore[import-untyped]  # it has no stubs
    from sklearn.inspection import permutation_importance  # type: ignore[import-untyped]  # it has no stubs

    table = pd.DataFrame(configurations, dtype=str).fillna("").sort_index(axis=1)
    table = table.loc[:, table.nunique() > 1]
    if table.empty or len(set(scores)) < 2:
        return [], "All finished configurations have the same score."
    for key, texts in table.items():
        numbers = pd.to_numeric(texts, errors="coerce")
        table[key] = pd.factorize(texts, sort=True)[0] if numbers.isna().any() else numbers
    # Sorted, so that the result does not depend on the order of the jobs.
    rows = table.assign(score=scores).sort_values([*table.columns, "score"]).to_numpy(float)
    inputs, target = rows[:, :-1], rows[:, -1]
    forest = RandomForestRegressor(256, oob_score=True, random_state=0).fit(inputs, target)
    drops = permutation_importance(forest, inputs, target, random_state=0).importances_mean.clip(0)
    if forest.oob_score_ <= 0 or not drops.any():
        return [], "A random forest cannot predict the score of configurations it was not trained on."
    shares = (drops / drops.sum()).tolist()
    message = (
        f"Relative permutation importance of a random forest on {len(target)} configurations; out of bag it "
        f"explains {100 * forest.oob_score_:.0f} % of the variance."
    )
    return sorted(zip(table.columns, shares, strict=True), key=lambda share: (-share[1], share[0])), message
