"""The objectives of a sweep, and how metrics and means are named."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, final

from assay.config.did_you_mean import did_you_mean
from assay.errors import ConfigError
from assay.quoting import format_number
from assay.record.scores import Shares, format_score, is_better_low, is_percent

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from assay.record.run_record import Outcome
    from assay_analysis.statistics import Mean


Direction = Literal["minimize", "maximize"]


@final
@dataclass(frozen=True)
class Objective:
    """A score that jobs are compared by."""

    name: str
    direction: Direction
    stated: bool = field(default=True, repr=False, compare=False)

    def check(self, directions: Mapping[str, str], aims: Sequence[Objective]) -> None:
        """Refuse the wrong direction; the message names the right ones of all objectives."""
        key = "hydra.sweeper.direction"
        stated = self.direction
        better = directions.get(self.name)
        if better is None and not self.stated and not is_better_low(self.name):
            message = f"whether {self.name} is better high or low is not known; state it"
            raise ConfigError(message, key=key, hint=f"{key}=maximize, or {key}=minimize")
        if better is not None and not stated.startswith(better):
            right = [f"{directions.get(aim.name, aim.direction)[:3]}imize" for aim in aims]
            raise ConfigError(
                f"{self.name} is better the {'higher' if better == 'max' else 'lower'} it is; "
                f"{stated} looks for the worst",
                key=key,
                hint=f"{key}={right[0] if len(right) == 1 else '[' + ','.join(right) + ']'}",
            )

    def score(self, outcome: Outcome) -> float | None:
        """The score of the best checkpoint where this is what checkpoints are kept by, else the last one."""
        value = outcome.metrics.get(self.name)
        if outcome.best.get("monitor") == self.name:
            value = outcome.best["value"]
        if value is not None and math.isfinite(value):
            return float(value)
        return None


def scores_of(outcome: Outcome, aims: Sequence[Objective]) -> list[float] | None:
    """A job's score for each objective."""
    scores = [aim.score(outcome) for aim in aims]
    present = [score for score in scores if score is not None]
    if outcome.status == "finished" and len(present) == len(scores):
        return present
    return None


def read_objectives(sweeper: Mapping[str, Any], job: Mapping[str, Any]) -> list[Objective]:
    """The objectives of a sweep: those of its sweeper, else what its jobs choose the best checkpoint by."""
    monitored = _monitored_directions(job)
    names = _as_list(sweeper.get("objective")) or [next(iter(monitored), "val/loss")]
    texts = [_SHORT.get(word, word) for word in _as_list(sweeper.get("direction"))]
    if len(texts) == 1:
        texts *= len(names)  # one stands for all
    if texts and len(texts) != len(names):
        raise ConfigError(
            f"{len(texts)} of them for {len(names)} objectives",
            key="hydra.sweeper.direction",
            hint=f"hydra.sweeper.direction=[{','.join(_guess(name) for name in names)}]",
        )
    return list(map(_make_objective, names, texts or [monitored.get(name, "") for name in names]))


def _make_objective(name: str, text: str) -> Objective:
    if text not in ("minimize", "maximize", ""):
        message = f"{text!r} is neither minimize nor maximize"
        raise ConfigError(
            message, key="hydra.sweeper.direction", hint="hydra.sweeper.direction=maximize"
        )
    direction: Any = text or _guess(name)
    return Objective(name, direction, stated=bool(text))


def _guess(name: str) -> Direction:
    if is_better_low(name):
        return "minimize"
    return "maximize"


_SHORT = {
    "min": "minimize",
    "max": "maximize",
    "force_min": "minimize",
    "force_max": "maximize",
    "auto": "",
}


def _as_list(value: Any) -> list[str]:
    if value is None:
        return []
    if isinstance(value, list | tuple):
        return [str(item) for item in value]
    return [str(value)]


def _monitored_directions(job: Mapping[str, Any]) -> dict[str, str]:
    """What the checkpoints of a job are kept by, the one called `checkpoint` first, and its direction."""
    nodes: Mapping[str, Any] = job.get("callbacks") or {}
    directions = {}
    for name in sorted(nodes, key=lambda name: name != "checkpoint"):
        node = {}
        if isinstance(nodes[name], dict):
            node = nodes[name]
        if node.get("monitor") and str(node.get("_target_")).endswith("ModelCheckpoint"):
            directions[str(node["monitor"])] = _SHORT.get(str(node.get("mode")), "")
    return directions


def check_scores_exist(scores: Sequence[str], requested: Mapping[str, str]) -> None:
    """Refuse an objective that the jobs will not log."""
    available = {name.replace("val/", "test/") for name in scores} | set(scores)
    for name, key in requested.items():
        if scores and name not in available:
            raise unknown_score_error(key, name, sorted(scores))


def unknown_score_error(key: str, name: str, available: Sequence[str]) -> ConfigError:
    """The error for a metric that a job will not log."""
    message = f"unknown metric {name!r}{did_you_mean(name, available, '; ')}"
    return ConfigError(message, key=key, hint=f"available: {', '.join(available)}")


RARE = 0.2
"""Share of the samples below which the smaller of two classes is rare."""
_OF_A_CLASS = re.compile("Precision|Recall|F1|FBeta|Jaccard|Specificity")


def metric_keys(name: str) -> tuple[str, str, str]:
    """Where a config says the class of a metric of evaluation, what it averages over, and its classes."""
    node = f"metrics.eval.metrics.{name}"
    return f"{node}._target_", f"{node}.average", "spec.class_names"


def describe_metric(name: str, target: str, average: str, class_names: str) -> str:
    """A metric's name, and what it averages over or of which class it is, by the values of `metric_keys`.

    >>> describe_metric("f1", "torchmetrics.classification.MulticlassF1Score", "", "[a, b, c]")
    'f1 (macro)'
    >>> describe_metric("f1", "torchmetrics.classification.BinaryF1Score", "", "[healthy, ill]")
    'f1 of ill'
    """
    kind = target.rpartition(".")[2]
    if kind.startswith("Binary"):
        if _OF_A_CLASS.search(kind):
            positive = class_names.strip("[]").rpartition(",")[2].strip(" '\"")
            return f"{name} of {positive or 'class 1'}"
        return name
    average = average or ("macro" if kind.startswith(("Multiclass", "Multilabel")) else "")
    is_said = name.startswith("mean") or (average == "micro" and "Accuracy" in kind)
    if is_said or average in ("", "none", "null"):
        return name
    return f"{name} ({average})"


def score_text(name: str, score: Mean, shares: Shares | None = None) -> str:
    """The mean of repetitions and half its interval, both to the digits that the interval leaves meaning."""
    half = score.half_width
    if half is None:
        return format_score(name, score.mean, shares)
    if is_percent(name, score.mean, shares):
        times, unit = (100, " %")
    else:
        times, unit = (1, "")
    return f"{_plus_minus(times * score.mean, times * half)}{unit}"


def _plus_minus(mean: float, half: float) -> str:
    if not 1e-6 <= half < math.inf or (mean and abs(mean) < 1e-4):
        return f"{format_number(mean)} ± {half:.2g}"
    exponent = math.floor(math.log10(half))
    digits = max(0, 1 - exponent)
    return f"{mean:,.{digits}f} ± {round(half, 1 - exponent):,.{digits}f}"
