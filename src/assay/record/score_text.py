"""Scores as people say them: shares in per cent, with the digits that mean something."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Final

from assay.quoting import number_text

if TYPE_CHECKING:
    from assay.record.runs.statistics import Mean

_OF_A_CLASS: Final = re.compile("Precision|Recall|F1|FBeta|Jaccard|Specificity")
_SHARES: Final = (
    *("accuracy", "precision", "recall", "f1", "auroc", "one_nn", "probe_accuracy"),
    *("balanced accuracy", "average precision", "exact match"),
    *("mean iou", "mean_iou", "mean dice", "mean_dice", "pixel accuracy", "pixel_accuracy"),
)
"""How their names begin."""


def format_score(name: str, value: float) -> str:
    """One score: a share in per cent, the rest with four significant digits or more.

    Args:
        name: Such as `test/accuracy`.
        value: The score.

    >>> format_score("test/accuracy", 0.98611), format_score("test/loss", 0.043218)
    ('98.61 %', '0.04322')
    >>> format_score("grower: f1 of a/b", 0.98611)
    '98.61 %'
    """
    return f"{100 * value:.2f} %" if is_share(name) else number_text(value)


def described_metric(name: str, target: str, average: str, positive: str) -> str:
    """A metric's name, and what it averages over or of which class it is.

    Args:
        name: Such as `f1`.
        target: Its class, such as `torchmetrics.classification.BinaryF1Score`.
        average: Its argument of that name; empty where it is not stated.
        positive: The class that a score of yes or no is of.

    >>> described_metric("f1", "torchmetrics.classification.MulticlassF1Score", "", "")
    'f1 (macro)'
    >>> described_metric("f1", "torchmetrics.classification.BinaryF1Score", "", "ill")
    'f1 of ill'
    """
    kind = target.rpartition(".")[2]
    if kind.startswith("Binary"):
        return f"{name} of {positive}" if _OF_A_CLASS.search(kind) else name
    average = average or ("macro" if kind.startswith(("Multiclass", "Multilabel")) else "")
    is_said = name.startswith("mean") or (average == "micro" and "Accuracy" in kind)
    return name if is_said or average in ("", "none", "null") else f"{name} ({average})"


def score_text(name: str, score: Mean) -> str:
    """The mean of repetitions and half its interval, both to the digits that the interval leaves meaning.

    Args:
        name: Such as `test/accuracy`.
        score: Its mean.

    >>> from assay.record.runs.statistics import mean_of
    >>> score_text("test/accuracy", mean_of([0.97, 0.98])), score_text("test/loss", mean_of([0.97, 0.98]))
    ('97.5 ± 6.4 %', '0.975 ± 0.064')
    """
    half = score.half_width
    if half is None:
        return format_score(name, score.mean)
    times, unit = (100, " %") if is_share(name) else (1, "")
    return f"{_plus_minus(times * score.mean, times * half)}{unit}"


def _plus_minus(mean: float, half: float) -> str:
    if half == 0.0 or not math.isfinite(half):
        return f"{number_text(mean)} ± {half:.1g}"
    first = math.floor(math.log10(half))
    if first < -6 or (mean and abs(mean) < 1e-4):
        return f"{mean:.4g} ± {half:.2g}"
    digits = max(0, 1 - first)
    return f"{mean:,.{digits}f} ± {round(half, 1 - first):,.{digits}f}"


def is_share(name: str) -> bool:
    """Whether a score is a share of a whole, by its name."""
    score = name.partition(" of ")[0]  # of a class, whose name may be anything
    return score.rpartition("/")[2].rpartition(": ")[2].startswith(_SHARES)
