"""The baseline of a run, as its record has it and as people read it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from assay.record.objective import format_score

if TYPE_CHECKING:
    from collections.abc import Mapping

NAMES: Final = ("majority", "mean", "linear", "gradient_boosting", "tfidf", "last_value")
"""What can be asked for, beside `auto` and `none`."""


def in_words(baseline: Mapping[str, Any]) -> str:
    """A record's baseline as a person says it.

    >>> in_words({"name": "gradient_boosting", "score": "accuracy", "value": 0.928, "difference": -0.014,
    ...     "noise": 0.003, "ahead": "baseline"})
    'gradient boosting 92.80 % accuracy: ahead of this run by 1.40, more than its noise'
    """
    scale = 1 if baseline["score"] == "r2" else 100
    value, score = format_score(baseline["score"], baseline["value"]), baseline["score"].replace("_", " ")
    by = abs(scale * baseline["difference"])
    digits = f"{by:.2f}" if scale == 100 else f"{by:.3f}"
    who = f"{baseline['name'].replace('_', ' ')} {value} {'R²' if score == 'r2' else score}"
    if not float(digits):
        return f"{who}: the same as this run"
    side = "behind" if baseline["difference"] > 0 else "ahead of"
    noise = "more than its noise" if baseline["ahead"] else "within its noise"
    return f"{who}: {side} this run by {digits}, {noise}"
