"""Whether one configuration is better than another by more than noise, and which of many tries to keep."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, final

from assay.analysis.statistics import (
    LEVEL,
    count_pairs,
    fold_gap,
    have_same_folds,
    mean_of,
    paired_gap,
    welch_gap,
)
from assay.quoting import format_number, pluralize

if TYPE_CHECKING:
    from collections.abc import Sequence

    from assay.analysis.run import Run


@final
@dataclass(frozen=True)
class Verdict:
    """Whether the first of two groups of runs is better than the second by more than noise.

    Attributes:
        word: `better`, `worse` or `not told apart`; empty where there is no verdict, and `reason` says why.
        first: What is judged.
        second: What it is compared with.
        metric: By which score.
        direction: `min` or `max`, which is better.
        difference: The mean score of the first less that of the second; null where one has none.
        low: Lower end of the 95 % interval of the difference.
        high: Upper end.
        test: Its name. Runs go together in pairs where each of the smaller group has a run of the same seed
            in the other one, and in folds where both have the same ones.
        p_value: Two-sided; null where there is no test.
        pairs: Pairs of the same seed or fold; 0 where runs do not go together.
        noise: Standard deviation of the score between repetitions of one configuration, of both groups; null
            where neither is repeated.
        more_seeds: How many more seeds of each would tell a difference of `tells` in four of five cases, 0
            where these do; null where there is a difference, or where more seeds would not help.
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
        return self.p_value / 2 if self.is_ahead else 1 - self.p_value / 2

    @property
    def text(self) -> str:
        """The difference, the test, the noise, and the word with what would tell more."""
        parts = []
        if self.difference is not None:
            half = "" if self.high is None else f" ± {self.high - self.difference:.2g}"
            parts.append(f"{self.metric} {self.difference:+.4g}{half}")
        if self.p_value is not None:
            pairs = f", n = {pluralize(self.pairs, 'pair')}" if self.pairs else ""
            parts.append(f"{self.test}, p = {self.p_value:.2g}{pairs}")
        parts += [] if self.noise is None else [f"noise {self.noise:.2g}"]
        word = self.word or f"no verdict, as {self.reason}"
        if self.tells is not None:
            seeds = pluralize(self.more_seeds, "more seed") if self.more_seeds else "these seeds"
            word = f"{word}; {seeds} would tell a difference of {format_number(self.tells, 2)}"
        return f"{'; '.join(parts)}: {word}" if parts else word

    @property
    def sentence(self) -> str:
        """What is compared with what, and the verdict."""
        return f"{self.first} against {self.second}: {self.text}"


def judge(
    first: Sequence[Run], second: Sequence[Run], metric: str, direction: str, names: tuple[str, str]
) -> Verdict:
    """Judge two configurations by their finished runs, each of which has another seed or fold."""
    verdict = Verdict("", *names, metric, direction)
    groups = [_read_scores(runs, metric) for runs in (first, second)]
    one, other = (mean_of((score for _, score in group), (run.fold for run, _ in group)) for group in groups)
    if one is None or other is None:
        return replace(verdict, reason=f"{names[one is not None]} has no finished run with {metric}")
    freedom = one.n + other.n - 2
    deviations = [value - mean.mean for mean in (one, other) for value in mean.values]
    noise = math.hypot(*deviations) / math.sqrt(freedom) if freedom else None
    verdict = replace(verdict, difference=one.mean - other.mean, noise=noise)
    if have_same_folds(one, other):
        gap = fold_gap(one, other)
    else:
        differences = _pair_scores(*groups)
        gap = (paired_gap(differences) if differences else None) or welch_gap(one.values, other.values)
    if gap is None and min(one.n, other.n) > 1:
        return replace(verdict, reason="the scores do not vary between repetitions, so no test can be made")
    if gap is None:
        runs = f"{pluralize(one.n, 'run')} against {pluralize(other.n, 'run')}"
        advice = "train both with the same seeds, such as `assay train -m … seed=1,2,3`"
        return replace(verdict, reason=f"{runs} cannot tell a difference from noise: {advice}")
    low, high = (gap.difference + sign * gap.half_width for sign in (-1, 1))
    verdict = replace(verdict, difference=gap.difference, low=low, high=high, p_value=gap.p_value)
    verdict = replace(verdict, test=gap.test, pairs=gap.pairs)
    if gap.p_value < 1 - LEVEL:
        return replace(verdict, word="better" if verdict.is_ahead else "worse")
    verdict = replace(verdict, word="not told apart")
    if one.folds or other.folds or not noise:  # more seeds of a fold are the same samples again
        return verdict
    n, tells = gap.pairs or min(one.n, other.n), max(abs(gap.difference), noise / 2)
    needed = count_pairs(tells, gap.error * math.sqrt(n))
    return replace(verdict, more_seeds=max(0, needed - n), tells=tells)


def _read_scores(runs: Sequence[Run], metric: str) -> list[tuple[Run, float]]:
    scores = [(run, run.score(metric)) for run in runs if run.status == "finished"]
    return [(run, score) for run, score in scores if score is not None and math.isfinite(score)]


def _pair_scores(*groups: Sequence[tuple[Run, float]]) -> list[float]:
    """Differences by seed and fold; none unless each run of the smaller group has one partner."""
    first, second = ({(run.seed, run.fold): score for run, score in group} for group in groups)
    shared = [key for key in first if key in second]
    is_paired = len(shared) == min(map(len, groups)) > 1
    is_unique = [len(first), len(second)] == [*map(len, groups)]
    return [first[key] - second[key] for key in shared] if is_paired and is_unique else []


RATE: Final = 0.05
"""Share of the kept changes that may be noise."""
_DECAY: Final = 1.6


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
    from scipy.special import zeta  # type: ignore[import-untyped]  # scipy has no types

    now, wealth = len(kept) + 1, RATE / 2
    earned = [number for number, is_kept in enumerate(kept, 1) if is_kept]
    sources = [(0, wealth), *zip(earned, [RATE - wealth] + [RATE] * len(earned), strict=False)]
    return float(sum(budget * (now - start) ** -_DECAY for start, budget in sources) / zeta(_DECAY))
