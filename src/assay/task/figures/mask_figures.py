"""What is shown of predicted masks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from assay.figure.figure import Bars, Figure
from assay.task.figures.class_figures import confusion_figures
from assay.task.score import bootstrapped

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from assay.task.prediction.predictions import Predictions
    from assay.task.score import Score

_MOST_BARS: Final = 30
_MOST_SAID: Final = 4


def mask_scores(predictions: Predictions) -> list[Score]:
    """Mean IoU and mean Dice over the classes that masks or predictions have, and the accuracy of pixels."""
    confusions = predictions.outputs.astype(float)
    num_classes = len(predictions.class_names)

    def statistic(weights: NDArray[Any]) -> Mapping[str, float]:
        matrix = (weights @ confusions).reshape(num_classes, num_classes)
        union = matrix.sum(0) + matrix.sum(1) - matrix.diagonal()
        with np.errstate(divide="ignore", invalid="ignore"):
            iou = matrix.diagonal() / union
            dice = 2 * matrix.diagonal() / (matrix.sum(0) + matrix.sum(1))
            accuracy = matrix.diagonal().sum() / matrix.sum()
        there = union > 0
        means = [float(values[there].mean()) if there.any() else float("nan") for values in (iou, dice)]
        return {"mean iou": means[0], "mean dice": means[1], "pixel accuracy": float(accuracy)}

    return bootstrapped(statistic, len(confusions))


def mask_figures(predictions: Predictions) -> list[Figure]:
    """IoU of each class, and what is taken for what."""
    names = predictions.class_names
    matrix = predictions.outputs.astype(float).sum(0).reshape(len(names), len(names))
    true, claimed, hit = matrix.sum(1), matrix.sum(0), matrix.diagonal()
    with np.errstate(divide="ignore", invalid="ignore"):
        iou = hit / (true + claimed - hit)
    shown, caption = np.flatnonzero(np.isfinite(iou)), ""
    absent = len(names) - len(shown)
    if len(shown) > _MOST_BARS:
        caption = f"The {_MOST_BARS} of {len(shown)} classes with the lowest IoU."
        shown = shown[np.argsort(iou[shown], kind="stable")[:_MOST_BARS]]
    if absent:
        caption = f"{caption} {absent} classes without a pixel, true or predicted, are left out.".strip()
    labels = [names[label] for label in shown]
    texts = [f"{names[at]}: IoU {iou[at]:.3f}, {true[at]:,.0f} pixels" for at in shown]
    bars = Figure(
        "iou_per_class",
        "IoU per class",
        (Bars("", labels, iou[shown], texts=texts),),
        y_label="intersection over union",
        y_range=(0, 1.02),
        is_wide=len(labels) > 12,
        caption=caption,
    )
    return [bars, *confusion_figures(matrix, names, "pixels")]


def sample_iou(predictions: Predictions) -> NDArray[Any]:
    """Mean IoU of each sample, over the classes that its mask or the prediction has, `[N]`."""
    iou = _iou_of_each(predictions.outputs, len(predictions.class_names))
    there = np.isfinite(iou)
    with np.errstate(invalid="ignore"):
        mean: NDArray[Any] = np.where(there, iou, 0).sum(1) / there.sum(1)
    return mean


def said_of_mask(predictions: Predictions, index: int) -> str:
    """Mean IoU of a sample, and the classes that it is lowest for."""
    iou = _iou_of_each(predictions.outputs[index : index + 1], len(predictions.class_names))[0]
    there = np.flatnonzero(np.isfinite(iou))
    if not len(there):
        return "every pixel is left out"
    lowest = there[np.argsort(iou[there], kind="stable")]
    told = ", ".join(f"{predictions.class_names[label]} {iou[label]:.2f}" for label in lowest[:_MOST_SAID])
    return f"mean IoU {iou[there].mean():.2f}: {told}{', …' if len(lowest) > _MOST_SAID else ''}"


def _iou_of_each(confusions: NDArray[Any], num_classes: int) -> NDArray[Any]:
    matrices = confusions.reshape(-1, num_classes, num_classes).astype(float)
    hit = np.diagonal(matrices, axis1=1, axis2=2)
    with np.errstate(divide="ignore", invalid="ignore"):
        iou: NDArray[Any] = hit / (matrices.sum(1) + matrices.sum(2) - hit)
    return iou
