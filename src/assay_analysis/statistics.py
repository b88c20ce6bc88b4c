"""Means of repetitions, their intervals, whether two differ, and what to keep."""

from __future__ import annotations

import bisect
import functools
import itertools
import math
import statistics
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, final

from assay.quoting import format_number, pluralize

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from assay_analysis.run import Run, Runs


LEVEL = 0.95
"""Of the intervals; differences with p < 1 - LEVEL are called more than noise."""
WELCH = "Welch's t-test"
PAIRED = "paired t-test"
OVER_FOLDS = "corrected resampled t-test"
SIGN_FLIP = "exact sign-flip test"
"""Names of the tests in messages."""
_ROUNDING = 1e-6
"""Share of a score below which differences are rounding: most scores are computed in float32."""


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
        if self.high is None:
            return None
        return self.high - self.mean


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
        values = [
            math.fsum(scores_of_fold) / len(scores_of_fold) for scores_of_fold in of_fold.values()
        ]
    if not values:
        return None
    mean = math.fsum(values) / len(values)
    if len(values) < 2:
        return Mean(tuple(values), mean, 1)
    std = statistics.stdev(values)
    half = quantile(LEVEL, len(values) - 1) * std / math.sqrt(len(values))
    found = Mean(tuple(values), mean, len(values), std, mean - half, mean + half)
    if len(of_fold) > 1:
        return replace(found, folds=tuple(of_fold))
    return found


def have_same_folds(first: Mean, second: Mean) -> bool:
    """Whether both are means over the same folds, so that their values go together in pairs."""
    return len(first.folds) > 1 and set(first.folds) == set(second.folds)


@final
@dataclass(frozen=True)
class Gap:
    """A difference of two means, and what its test needs; `pairs` is 0 where there are none."""

    test: str
    difference: float
    error: float
    freedom: float
    pairs: int = 0

    @property
    def p_value(self) -> float:
        """Two-sided, of Student's t-test or, where all pairs differ by the same amount, of sign flips."""
        from scipy.special import stdtr  # type: ignore[import-untyped]  # scipy has no types

        if self.test == SIGN_FLIP:  # of 2^n flips, two have a mean as large
            if self.difference:
                return 2.0 ** (1 - self.pairs)
            return 1.0
        return float(2 * stdtr(self.freedom, -abs(self.difference / self.error)))

    @property
    def half_width(self) -> float | None:
        """Of the 95 % interval of the difference; None where the pairs do not vary."""
        if self.test == SIGN_FLIP:
            return None
        return quantile(LEVEL, self.freedom) * self.error

    def count_missing(self, n: int, difference: float) -> int:
        """How many more than n pairs or runs a side would detect a difference."""
        if self.test == SIGN_FLIP:
            return max(0, math.floor(1 - math.log2(1 - LEVEL)) + 1 - n)
        return max(0, count_pairs(difference, self.error * math.sqrt(n)) - n)


def fold_gap(first: Mean, baseline: Mean) -> Gap:
    """The difference over the same folds, for the corrected resampled t-test (Nadeau and Bengio 2003).

    A t-test of the differences by fold, whose variance is multiplied by 1/k + 1/(k - 1) in place of 1/k, as
    any two of k folds have most of their training samples in common.
    """
    by_fold = dict(zip(baseline.folds, baseline.values, strict=True))
    pairs = [
        (value, by_fold[fold]) for fold, value in zip(first.folds, first.values, strict=True)
    ]
    return paired_gap(pairs, OVER_FOLDS, 1 / (len(pairs) - 1))


def paired_gap(
    pairs: Sequence[tuple[float, float]], test: str = PAIRED, overlap: float = 0.0
) -> Gap:
    """The mean difference of pairs, as `scipy.stats.ttest_rel` takes it.

    Differences that are the same but for rounding do not say how much others would vary: of these the signs
    are flipped, as `scipy.stats.permutation_test(permutation_type="samples")` does.
    """
    differences = [value - other for value, other in pairs]
    n = len(pairs)
    mean = statistics.fmean(differences)
    std = statistics.stdev(differences)
    rounding = _ROUNDING * max(map(abs, itertools.chain(*pairs)))
    if std <= rounding:
        return Gap(SIGN_FLIP, mean if abs(mean) > rounding else 0.0, 0.0, n - 1, n)
    return Gap(test, mean, std * math.sqrt(1 / n + overlap), n - 1, n)


def welch_gap(a: Sequence[float], b: Sequence[float]) -> Gap | None:
    """The difference of two means, as `scipy.stats.ttest_ind(equal_var=False)` takes it."""
    errors = [statistics.variance(values) / len(values) for values in (a, b) if len(values) > 1]
    total = sum(errors)
    if len(errors) < 2 or math.sqrt(total) <= _ROUNDING * max(map(abs, (*a, *b))):
        return None
    shares = (
        (error / total) ** 2 / (len(group) - 1)
        for error, group in zip(errors, (a, b), strict=True)
    )
    return Gap(
        WELCH, statistics.fmean(a) - statistics.fmean(b), math.sqrt(total), 1 / sum(shares)
    )


POWER = 0.8
"""Share of cases in which a difference that is there is to be told."""
_MOST_PAIRS = 2000


def count_pairs(difference: float, std: float) -> int:
    """How many pairs a two-sided paired t-test needs to tell a difference with a power of 80 %.

    Args:
        difference: Of the means, as it is in truth.
        std: Standard deviation of the differences of pairs.
    """
    from scipy.special import nctdtr

    def power(n: int) -> float:
        return float(
            1 - nctdtr(n - 1, abs(difference) / std * math.sqrt(n), quantile(LEVEL, n - 1))
        )

    return 2 + bisect.bisect_left(range(2, _MOST_PAIRS), POWER, key=power)


@functools.cache
def quantile(level: float, freedom: float) -> float:
    """The value such that one lies between it and its negative with a probability."""
    from scipy.special import stdtrit

    return float(stdtrit(freedom, (1 + level) / 2))


@final
@dataclass(frozen=True)
class Verdict:
    """Whether the first of two groups of runs is better than the second by more than noise.

    Attributes:
        word: `better`, `worse` or `no significant difference`; empty where there is no verdict: see `reason`.
        first: What is judged.
        second: What it is compared with.
        metric: By which score.
        direction: `min` or `max`, which is better.
        difference: The mean score of the first less that of the second; null where one has none.
        low: Lower end of the 95 % interval of the difference.
        high: Upper end; both are null where all pairs differ by the same amount.
        test: Its name. Runs go together in pairs where each of the smaller group has a run of the same seed
            in the other one, and in folds where both have the same ones.
        p_value: Two-sided; null where there is no test.
        pairs: Pairs of the same seed or fold; 0 where runs do not go together.
        noise: Standard deviation of the score between repetitions of one configuration, of both groups; null
            where neither is repeated.
        more_seeds: How many more seeds of each would detect a difference of `tells` in four of five
            cases, 0 where these do; null where there is a difference, or where more seeds would not help.
        tells: The difference that was seen, or half the noise if that is larger.
        reason: Why there is no verdict.
    """

    word: str
    first: str
    second: str
    metric: str
    direction: str
    difference: float | None = None
    low: float | None = None
    high: float | None = None
    test: str = ""
    p_value: float | None = None
    pairs: int = 0
    noise: float | None = None
    more_seeds: int | None = None
    tells: float | None = None
    reason: str = ""

    @property
    def is_ahead(self) -> bool:
        """Whether the first seems better, be it by noise."""
        return bool(self.difference and (self.difference > 0) == (self.direction == "max"))

    @property
    def p_better(self) -> float:
        """One-sided: how often the first would seem as good as this or better if it were not; 1 untested."""
        if self.p_value is None:
            return 1.0
        if self.is_ahead:
            return self.p_value / 2
        return 1 - self.p_value / 2

    @property
    def text(self) -> str:
        """The difference, the test, the noise, the word, and how many more seeds would help."""
        parts = []
        if self.difference is not None:
            half = ""
            if self.high is not None:
                half = f" ± {self.high - self.difference:.2g}"
            parts.append(f"{self.metric} {self.difference:+.4g}{half}")
        if self.p_value is not None:
            pairs = ""
            if self.pairs:
                pairs = f", n = {pluralize(self.pairs, 'pair')}"
            same = ""
            if self.test == SIGN_FLIP:
                same = ", which all differ by the same amount"
            parts.append(f"{self.test}, p = {self.p_value:.2g}{pairs}{same}")
        if self.noise is not None:
            parts += [f"noise {self.noise:.2g}"]
        word = self.word or f"no verdict, as {self.reason}"
        if self.tells is not None:
            seeds = "these seeds"
            if self.more_seeds:
                seeds = pluralize(self.more_seeds, "more seed")
            word = f"{word}; {seeds} would detect a difference of {format_number(self.tells, 2)}"
        if parts:
            return f"{'; '.join(parts)}: {word}"
        return word

    @property
    def sentence(self) -> str:
        """What is compared with what, and the verdict."""
        return f"{self.first} against {self.second}: {self.text}"


def judge(
    first: Runs,
    second: Runs,
    metric: str,
    direction: str,
    names: tuple[str, str],
) -> Verdict:
    """Judge two configurations by their finished runs, each of which has another seed or fold."""
    verdict = Verdict("", *names, metric, direction)
    groups = [read_scores(runs, metric) for runs in (first, second)]
    one, other = (
        mean_of((score for _, score in group), (run.fold for run, _ in group)) for group in groups
    )
    if one is None or other is None:
        return replace(
            verdict, reason=f"{names[one is not None]} has no finished run with {metric}"
        )
    freedom = one.n + other.n - 2
    deviations = [value - mean.mean for mean in (one, other) for value in mean.values]
    noise = None
    if freedom:
        noise = math.hypot(*deviations) / math.sqrt(freedom)
    verdict = replace(verdict, difference=one.mean - other.mean, noise=noise)
    if have_same_folds(one, other):
        gap: Gap | None = fold_gap(one, other)
    elif pairs := _pair_scores(*groups):
        gap = paired_gap(pairs)
    else:
        gap = welch_gap(one.values, other.values)
    if gap is None:
        reason = "the scores do not vary between repetitions, so no test can be made"
        if min(one.n, other.n) < 2:
            runs = f"{pluralize(one.n, 'run')} against {pluralize(other.n, 'run')}"
            advice = "train both with the same seeds, such as `assay train -m … seed=1,2,3`"
            reason = f"{runs} cannot tell a difference from noise: {advice}"
        return replace(verdict, reason=reason)
    verdict = replace(
        verdict, difference=gap.difference, p_value=gap.p_value, test=gap.test, pairs=gap.pairs
    )
    if (half := gap.half_width) is not None:
        verdict = replace(verdict, low=gap.difference - half, high=gap.difference + half)
    if gap.p_value < 1 - LEVEL:
        return replace(verdict, word="better" if verdict.is_ahead else "worse")
    verdict = replace(verdict, word="no significant difference")
    tells = abs(gap.difference)
    if gap.test != SIGN_FLIP and noise:
        tells = max(tells, noise / 2)
    if one.folds or other.folds or not tells:  # more seeds of a fold are the same samples again
        return verdict
    missing = gap.count_missing(gap.pairs or min(one.n, other.n), tells)
    return replace(verdict, more_seeds=missing, tells=tells)


def read_scores(runs: Runs, metric: str) -> list[tuple[Run, float]]:
    """Runs that have finished with a score."""
    scores = [(run, run.score(metric)) for run in runs if run.status == "finished"]
    return [(run, score) for run, score in scores if score is not None and math.isfinite(score)]


def _pair_scores(*groups: Sequence[tuple[Run, float]]) -> list[tuple[float, float]]:
    """Scores of the same seed and fold; none unless each run of the smaller group has one partner."""
    first, second = ({(run.seed, run.fold): score for run, score in group} for group in groups)
    shared = [key for key in first if key in second]
    is_paired = len(shared) == min(map(len, groups)) > 1
    is_unique = [len(first), len(second)] == [*map(len, groups)]
    if is_paired and is_unique:
        return [(first[key], second[key]) for key in shared]
    return []


RATE = 0.05
"""Share of the kept changes that may be noise."""
_DECAY = 1.6


def level_of_next(kept: Sequence[bool]) -> float:
    """The level of the next test, after tests that led to these decisions: LORD++.

    Over a night of tries a fixed level fails: of a hundred changes that do nothing, one in twenty passes, and
    where nothing helps, all that is kept is noise. LORD++ (Ramdas, Yang, Wainwright and Jordan, "Online
    control of the false discovery rate with decaying memory", NeurIPS 2017) spends a budget of error: each
    test gets a share that falls with the number of tests, and each change that is kept earns a new budget.
    With w = RATE / 2 and shares g(j) = j^-1.6 / zeta(1.6), which sum to 1, test t, after changes were kept at
    t1 < t2 < …, has the level w g(t) + (RATE - w) g(t - t1) + RATE (g(t - t2) + …).

    Of what is kept at most the share RATE is then expected to be noise, whatever share of the tries is and
    whichever change is tried next, if each p-value is valid given all that was seen before. That is why a
    change is tested on fresh seeds of both sides alone. The seeds of the reference do not count: they are the
    same for all tries, so that an unlucky reference would let all of them pass at once. They only decide what
    is worth a test; what is dropped before costs no level.

    >>> [round(level_of_next(kept), 4) for kept in ([], [False], [True], [True, True])]
    [0.0109, 0.0036, 0.0145, 0.0274]
    """
    from scipy.special import zeta

    now = len(kept) + 1
    wealth = RATE / 2
    earned = [number for number, is_kept in enumerate(kept, 1) if is_kept]
    sources = [(0, wealth), *zip(earned, [RATE - wealth] + [RATE] * len(earned), strict=False)]
    return float(
        sum(budget * (now - start) ** -_DECAY for start, budget in sources) / zeta(_DECAY)
    )
