"""Evaluates stored predictions of one kind: scores, intervals and warnings about useless models."""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, final

import numpy as np
from typing_extensions import override

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from assay.figure import Array, Figure
    from assay.task.predictions import StoredPredictions


LEVEL = 0.95
"""Share of the resampled values within an interval."""
LEFT_OUT = "its scores are undefined, and means leave it out"
"""What a note says of a class or label without samples."""
_MOST_DRAWS = 1000
_FEWEST_DRAWS = 200
_WORK = 5_000_000


@final
@dataclass(frozen=True)
class Score:
    """A score of a model on its test samples.

    Attributes:
        name: Such as `f1 (macro)`.
        value: On these samples; NaN if undefined.
        interval: Returns the ends of the interval of `LEVEL`; NaN if there is none.
        metric: What it is in the terms of torchmetrics, such as `F1Score macro`, see
            `assay.metrics.over_classes.score_of`; a metric of the config that is the same has this value
            after the test. Empty: no metric is.
    """

    name: str
    value: float
    interval: Callable[[], tuple[float, float]] = lambda: (np.nan, np.nan)
    metric: str = ""

    @property
    def low(self) -> float:
        """Lower end of the interval."""
        return self.interval()[0]

    @property
    def high(self) -> float:
        """Upper end of the interval."""
        return self.interval()[1]


def bootstrapped(
    statistic: Callable[[Array], Mapping[str, float]],
    num_samples: int,
    metrics: Mapping[str, str] | None = None,
    shares: Mapping[str, Array] | None = None,
) -> list[Score]:
    """Scores with intervals, which are computed when they are first asked for.

    Args:
        statistic: Maps how often each sample was drawn, float64 `[N]`, to scores by name. With ones it
            returns the scores themselves.
        num_samples: N; below two there are no intervals.
        metrics: `Score.metric` of the scores, by name.
        shares: Scores that are the share of samples which are right, by name: whether each is, bool. Their
            interval is Wilson's; that of others is the percentile bootstrap (Efron and Tibshirani 1993,
            chapter 13) over samples, unless all draws agree.
    """

    @functools.cache
    def draws() -> list[Mapping[str, float]]:
        return [statistic(weights) for weights in _bootstrap_weights(num_samples)]

    def interval(name: str, value: float) -> tuple[float, float]:
        if shares and name in shares:
            return _wilson(shares[name])
        column = np.empty(0)
        if num_samples > 1:
            column = np.array([draw[name] for draw in draws()])
        column = column[np.isfinite(column)]
        if len(column):
            low, high = np.quantile(column, ((1 - LEVEL) / 2, (1 + LEVEL) / 2))
            # Drawing samples twice may move the score itself, as of calibration.
            if low < high and low <= value <= high:
                return float(low), float(high)
        return np.nan, np.nan

    return [
        Score(
            name,
            float(value),
            functools.partial(interval, name, value),
            (metrics or {}).get(name, ""),
        )
        for name, value in statistic(np.ones(num_samples)).items()
    ]


def _wilson(is_right: Array) -> tuple[float, float]:
    from scipy.stats import binomtest  # type: ignore[import-untyped]  # it has no stubs

    if not len(is_right):
        return np.nan, np.nan
    ends = binomtest(int(is_right.sum()), len(is_right)).proportion_ci(LEVEL, method="wilson")
    return float(ends.low), float(ends.high)


def num_draws(num_samples: int) -> int:
    """Return the number of bootstrap draws: fewer for many samples, whose scores vary little."""
    return max(_FEWEST_DRAWS, min(_MOST_DRAWS, _WORK // max(num_samples, 1)))


def _bootstrap_weights(num_samples: int) -> Iterator[Array]:
    """Yield the same weights each time, so that a report can be reproduced."""
    generator = np.random.default_rng(0)
    for _ in range(num_draws(num_samples)):
        drawn = generator.integers(0, num_samples, num_samples)
        yield np.bincount(drawn, minlength=num_samples).astype(float)


class Evaluator(ABC):
    """Evaluates stored predictions; `assay.task.task.Task` documents each method."""

    caption: ClassVar[str] = ""

    def __init__(self, predictions: StoredPredictions) -> None:
        self.predictions = predictions
        self.outputs = predictions.outputs
        self.names = predictions.class_names

    @property
    def targets(self) -> Array:
        """The targets; an error if there are none."""
        if self.predictions.targets is None:
            raise ValueError("there are no targets to compare with")
        return self.predictions.targets

    @property
    def samples(self) -> str:
        """The samples in words, see `describe_samples`."""
        return describe_samples(self.predictions)

    @abstractmethod
    def scores(self) -> list[Score]:
        """See `Task.scores`."""

    def figures(self) -> list[Figure]:
        """See `Task.figures`."""
        return []

    def error_scores(self) -> Array:
        """See `Task.error_scores`."""
        return np.full(len(self.outputs), np.nan)

    def predicted_label(self, index: int) -> str:
        """See `Task.predicted_label`."""
        return ""

    def baseline_warnings(self) -> list[str]:
        """See `Task.baseline_warnings`."""
        return []

    def is_right(self) -> Array | None:
        """See `Task.is_right`."""
        return None


@final
class Unknown(Evaluator):
    """For outputs that cannot be evaluated."""

    @override
    def scores(self) -> list[Score]:
        return []


def class_name(predictions: StoredPredictions, label: int) -> str:
    """Return the name of a class or label, or its number."""
    if label < len(predictions.class_names):
        return predictions.class_names[label]
    return str(label)


def describe_samples(predictions: StoredPredictions) -> str:
    """Describe the samples, such as `the 450 test samples`."""
    subset = ""
    if predictions.subset != "all":
        subset = f"{predictions.subset} "
    prefix = ""
    if predictions.num_evaluated:
        prefix = "kept "
    return f"the {len(predictions.keys):,} {prefix}{subset}samples"


FEWEST = 10
"""Samples needed to compare a score with that of a constant prediction."""
FEWEST_OTHERS = 3
"""Samples outside the most frequent class that are needed for a warning: a model may miss fewer."""
_Z = 1.645
"""Quantile of a one-sided test at 5 %."""


def class_warnings(
    true: Array,
    preds: Array,
    names: Sequence[str],
    samples: str,
    who: str = "the model",
) -> list[str]:
    """Warn if one class is predicted for all samples, or the most frequent class would score as well."""
    size = 1 + int(max(true.max(initial=0), preds.max(initial=0)))
    are, claimed, hits = (
        np.bincount(of, minlength=size) for of in (true, preds, true[true == preds])
    )
    return count_warnings(are, claimed, hits, names, samples, num_independent=len(true), who=who)


def count_warnings(
    are: Array,
    claimed: Array,
    hits: Array,
    names: Sequence[str],
    samples: str,
    *,
    num_independent: int,
    who: str = "the model",
) -> list[str]:
    """Warn as `class_warnings`, from counts of items that may be dependent, such as pixels.

    There is no warning if the model is right more often than chance, by Cohen's kappa and its variance under
    chance (Fleiss, Cohen and Everitt 1969), one-sided at 5 %: a model that finds rare classes is useful, even
    if it is right less often than the most frequent class.
    """
    total = int(are.sum())
    most = int(are.argmax())
    if total - are[most] < FEWEST_OTHERS:
        return []
    if claimed.max() == total:
        return [
            f"{who} predicts {quote_class(names, int(claimed.argmax()))} for each of {samples}"
        ]
    if total < FEWEST or hits.sum() > are[most]:
        return []
    p = are / total
    q = claimed / total
    chance = float(p @ q)
    variance = max(chance + chance**2 - float((p * q) @ (p + q)), 0.0) / num_independent
    if hits.sum() / total - chance > _Z * np.sqrt(variance):
        return []
    return [
        f"{who} is right for {100 * hits.sum() / total:.1f} % of {samples}: not better than always "
        f"predicting {quote_class(names, most)}, the most frequent class ({100 * are[most] / total:.1f} %)"
    ]


def quote_class(names: Sequence[str], label: int) -> str:
    """Quote the name of a class, or number it."""
    if names:
        return repr(names[label])
    return f"class {label}"
