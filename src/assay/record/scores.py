"""How scores are written: shares in per cent, thresholds and baselines in words."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

from assay.quoting import format_number

_SHARES = re.compile(
    r"(?<![a-z])"
    r"(accuracy|precision|recall|f1|auroc|specificity|sensitivity|iou|dice|exact match|one_nn)"
    r"(?![a-z])"
)
_NO_SHARE = re.compile(r"(loss|error|mae|mse|rmse|seconds)$")
_STAGES = ("train/", "val/", "test/")
_SMALL_IS_GOOD = ("loss", "mae", "mse", "rmse", "error", "perplexity", "seconds")


Shares = Mapping[str, bool]
"""Whether a score is a share of a whole, by its name without its subset, as a record says it."""


def format_score(name: str, value: float, shares: Shares | None = None) -> str:
    """One score: a share in per cent, the rest with four significant digits or more."""
    if math.isnan(value) and not _NO_SHARE.search(name):
        return "undefined"
    if is_percent(name, value, shares):
        return f"{100 * value:.2f} %"
    return format_number(value)


def is_share(name: str, shares: Shares | None = None) -> bool:
    """Whether a score is a share of a whole: as its metric says it, and where none does, by its name."""
    if name.startswith(_STAGES):
        bare = name.partition("/")[2]
    else:
        bare = name
    if shares and bare in shares:
        return shares[bare]
    # a class may be called anything
    score = bare.partition(" of ")[0].rpartition("/")[2].rpartition(": ")[2]
    return bool(_SHARES.search(score)) and not _NO_SHARE.search(score)


def is_percent(name: str, value: float, shares: Shares | None = None) -> bool:
    """Whether a score is written in per cent: a share that lies between 0 and 1."""
    return is_share(name, shares) and not (value < 0 or value > 1)


def is_better_low(name: str) -> bool:
    """Whether a metric is better the lower it is, judging by its name.

    >>> is_better_low("val/loss"), is_better_low("g_loss"), is_better_low("val/accuracy")
    (True, True, False)
    """
    return name.replace("/", "_").rpartition("_")[2] in _SMALL_IS_GOOD


BASELINES = ("majority", "mean", "linear", "gradient_boosting", "tfidf", "last_value")
"""What can be asked for, beside `auto` and `none`."""


def describe_threshold(threshold: Mapping[str, Any]) -> str:
    """From which probability on the second class is predicted, why, and what that does."""
    scores = [
        f"{name} {format_score(name, threshold[name])}"
        for name in ("precision", "recall", "f1")
        if name in threshold
    ]
    words = f"{threshold['value']:.4g}, {threshold.get('chosen', 'by F1 on validation')}"
    if not scores:
        return f"{words}, for {threshold['class']!r}"
    return f"{words}: {', '.join(scores)} of {threshold['class']!r} on {threshold.get('subset', 'the test')}"


def describe_baseline(baseline: Mapping[str, Any]) -> str:
    """Describe a record's baseline in words.

    >>> describe_baseline({"name": "gradient_boosting", "score": "accuracy", "value": 0.928,
    ...     "difference": -0.014, "noise": 0.003, "ahead": "baseline"})
    'gradient boosting 92.80 % accuracy: ahead of this run by 1.40, more than its noise'
    """
    scale = 100
    if baseline["score"] == "r2":
        scale = 1
    value = format_score(baseline["score"], baseline["value"])
    score = baseline["score"].replace("_", " ")
    by = abs(scale * baseline["difference"])
    if scale == 100:
        digits = f"{by:.2f}"
    else:
        digits = f"{by:.3f}"
    score_name = score
    if score == "r2":
        score_name = "R²"
    who = f"{baseline['name'].replace('_', ' ')} {value} {score_name}"
    if not float(digits):
        return f"{who}: the same as this run"
    side = "ahead of"
    if baseline["difference"] > 0:
        side = "behind"
    noise = "within its noise"
    if baseline["ahead"]:
        noise = "more than its noise"
    return f"{who}: {side} this run by {digits}, {noise}"
