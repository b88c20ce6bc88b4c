"""Metrics of torchmetrics that average over classes or labels: only over those that a subset has."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import torch
from torchmetrics.utilities.data import dim_zero_cat

from assay.task.segmentation import IGNORED

if TYPE_CHECKING:
    from torch import Tensor
    from torchmetrics import Metric

_KIND = re.compile("^(Binary|Multiclass|Multilabel)")
_USUAL: dict[str, Any] = {
    "threshold": 0.5,
    "top_k": 1,
    "zero_division": 0,
    "multidim_average": "global",
    "thresholds": None,
    "max_fpr": None,
    "num_outputs": 1,
    "k": 1,
    "ignore_index": IGNORED,
}
"""Options with which a metric is what its name says."""
_MEANS = {
    **dict.fromkeys(("AUROC", "AveragePrecision"), ("macro", "weighted")),
    **dict.fromkeys(("Precision", "Recall", "F1Score", "FBetaScore"), ("macro",)),
}
"""What a metric computes, and the means over classes that count absent ones."""


def _kind(metric: Metric) -> str:
    """Name what a metric computes, whatever the targets are like."""
    name = type(metric).__name__
    is_recall = name == "MulticlassAccuracy" and metric.average == "macro"
    if is_recall:
        return "Recall"
    return _KIND.sub("", name)


def score_of(metric: Metric) -> str:
    """Name what a metric computes as `Score.metric` does; empty if no stored score is the same.

    >>> from torchmetrics.classification import MulticlassAccuracy, MulticlassF1Score
    >>> score_of(MulticlassF1Score(3, average="macro")), score_of(MulticlassAccuracy(3, average="micro"))
    ('F1Score macro', 'Accuracy')
    >>> score_of(MulticlassF1Score(3, average="macro", top_k=2))
    ''
    """
    average = getattr(metric, "average", None) or ""
    is_usual = all(
        getattr(metric, option, usual) in (usual, None) for option, usual in _USUAL.items()
    )
    if not is_usual or not type(metric).__module__.startswith(
        ("torchmetrics.", "assay.metrics.")
    ):
        return ""
    kind = _kind(metric)
    if kind == "Accuracy":
        if average in {"weighted", "none"}:
            return ""
        return kind
    if kind == "MeanSquaredError" and not metric.squared:
        return "MeanSquaredError root"
    return f"{kind} {average}".strip()


def separate_classes(metric: Metric) -> str | None:
    """Have a metric return the score of each class or label, where it would average over absent ones too.

    Returns:
        How `average_present` is to average them; None for a metric that is to stay as it is, such as
        those of masks, which average over the classes in masks or predictions.
    """
    options: Any = metric
    is_whole = getattr(metric, "multidim_average", "global") == "global"
    of_torchmetrics = type(metric).__module__.startswith("torchmetrics.")
    if not of_torchmetrics or not is_whole or getattr(metric, "ignore_index", None) is not None:
        return None
    average = (
        "macro"
        if type(metric).__name__.startswith("Binary")
        else getattr(metric, "average", None)
    )
    if average not in _MEANS.get(_kind(metric), ()):
        return None
    options.average = "none"
    return str(average)


def count_classes(metric: Metric) -> Tensor:
    """Count the samples of each class or label that a metric has seen, and all samples: `[2, C]`."""
    states: Any = metric
    if hasattr(metric, "tp"):
        positives = states.tp + states.fn
        total = positives + states.fp + states.tn
    elif states.thresholds is not None:
        by_target = states.confmat[0].sum(-1)
        positives = by_target[..., 1]
        total = by_target.sum(-1)
    else:
        num_classes: Any = getattr(metric, "num_classes", None)
        size: int = num_classes or getattr(metric, "num_labels", 1)
        if not len(states.target):
            return torch.zeros(2, size, device=metric.device)
        target = dim_zero_cat(states.target)
        if num_classes:
            positives = target.bincount(minlength=size)
        else:
            positives = (target == 1).reshape(-1, size).sum(0)
        total = torch.full_like(positives, len(target))
    return torch.stack([positives, total]).reshape(2, -1)


def average_present(metric: Metric, scores: Tensor, counts: Tensor, average: str) -> Tensor:
    """Average the scores of the classes or labels that have samples; NaN without any.

    Args:
        metric: Of which they are; an AUROC needs samples of the others as well.
        scores: `[C]`; of a binary metric one number.
        counts: From `count_classes`, over all ranks.
        average: From `separate_classes`.
    """
    positives, total = counts
    present = positives > 0
    if type(metric).__name__.endswith("AUROC"):
        present &= positives < total
    weights = present * (positives if average == "weighted" else torch.ones_like(positives))
    mean: Tensor = (torch.where(present, scores.reshape(-1), 0) * weights).sum() / weights.sum()
    return mean
