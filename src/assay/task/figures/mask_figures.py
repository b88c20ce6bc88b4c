"""What is shown of predicted masks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, final

import numpy as np
from typing_extensions import override

from assay.task.baseline_warnings import count_warnings
from assay.task.evaluator import Evaluator, bootstrapped, samples_of
from assay.task.figures.class_figures import confusion_figures, score_bars

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from assay.figure.figure import Figure
    from assay.task.evaluator import Score
    from assay.task.prediction.predictions import StoredPredictions

_MOST_SAID: Final = 4


def iou_of_each(confusions: NDArray[Any], num_classes: int) -> NDArray[Any]:
    """The IoU of each class `[N, C]`, by the confusions of N sets of pixels; NaN without a pixel."""
    matrices = confusions.reshape(-1, num_classes, num_classes).astype(float)
    hit = np.diagonal(matrices, axis1=1, axis2=2)
    with np.errstate(divide="ignore", invalid="ignore"):
        iou: NDArray[Any] = hit / (matrices.sum(1) + matrices.sum(2) - hit)
    return iou


@final
class Masks(Evaluator):
    """Of the confusions of the pixels of each picture."""

    @override
    def scores(self, predictions: StoredPredictions) -> list[Score]:
        """Mean IoU and Dice over the classes that masks or predictions have, and the accuracy of pixels."""
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

    @override
    def figures(self, predictions: StoredPredictions) -> list[Figure]:
        """IoU of each class, and what is taken for what."""
        names = predictions.class_names
        matrix = predictions.outputs.astype(float).sum(0).reshape(len(names), len(names))
        iou = iou_of_each(matrix, len(names))[0]
        worst = np.argsort(iou, kind="stable")[: np.isfinite(iou).sum()]  # NaN comes last
        absent = len(names) - len(worst)
        caption = f"{absent} classes without a pixel, true or predicted, are left out." if absent else ""
        true, title = matrix.sum(1), "Intersection over union per class"
        bars = score_bars(
            "iou_per_class", title, {"IoU": iou}, names, worst, support=true, unit="pixels", caption=caption
        )
        return [bars, *confusion_figures(matrix, names, "pixels")]

    @override
    def error_scores(self, predictions: StoredPredictions) -> NDArray[Any]:
        """1 - mean IoU of each sample, over the classes that its mask or the prediction has."""
        iou = iou_of_each(predictions.outputs, len(predictions.class_names))
        there = np.isfinite(iou)
        with np.errstate(invalid="ignore"):
            mean: NDArray[Any] = np.where(there, iou, 0).sum(1) / there.sum(1)
        return 1 - mean

    @override
    def hardest_caption(self, predictions: StoredPredictions) -> str:
        return (
            "The lowest mean IoU of a picture first. On the left the picture, in the middle its mask, on the "
            "right the predicted one; what is left out is white."
        )

    @override
    def baseline_warnings(self, predictions: StoredPredictions) -> list[str]:
        names = predictions.class_names
        matrix = predictions.outputs.sum(0, dtype=float).reshape(len(names), len(names))
        samples = f"the pixels of {samples_of(predictions)}"
        return count_warnings(matrix.sum(1), matrix.sum(0), names, samples)

    @override
    def predicted_label(self, predictions: StoredPredictions, index: int) -> str:
        """Mean IoU of a sample, and the classes that it is lowest for."""
        iou = iou_of_each(predictions.outputs[index : index + 1], len(predictions.class_names))[0]
        there = np.flatnonzero(np.isfinite(iou))
        if not len(there):
            return "every pixel is left out"
        lowest = there[np.argsort(iou[there], kind="stable")]
        told = ", ".join(
            f"{predictions.class_names[label]} {iou[label]:.2f}" for label in lowest[:_MOST_SAID]
        )
        return f"mean IoU {iou[there].mean():.2f}: {told}{', …' if len(lowest) > _MOST_SAID else ''}"
