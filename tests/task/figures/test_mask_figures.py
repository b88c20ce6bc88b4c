"""Scores of masks are those of torchmetrics over all pixels."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torchmetrics.classification import MulticlassAccuracy, MulticlassF1Score, MulticlassJaccardIndex

from assay.task.figures.mask_figures import mask_figures, mask_scores, said_of_mask, sample_iou
from assay.task.prediction.predictions import Predictions
from assay.task.segmentation import IGNORED
from assay.task.task_of import task_of

C, N = 4, 12
GENERATOR = torch.Generator().manual_seed(0)
TARGETS = torch.randint(3, (N, 9, 8), generator=GENERATOR)  # class 3 is only ever predicted
TARGETS[:, :2] = IGNORED
OUTPUTS = torch.randn(N, C, 9, 8, generator=GENERATOR) + 2 * torch.nn.functional.one_hot(
    TARGETS.clamp(max=C - 1), C
).movedim(-1, 1)


def predictions() -> Predictions:
    confusions, pixels = task_of("segmentation").kept(OUTPUTS, TARGETS, "probabilities")
    keys = tuple(map(str, range(N)))
    return Predictions(
        "segmentation", "confusions", keys, confusions.float().numpy(), pixels.numpy(), ("a", "b", "c", "d")
    )


def test_scores_are_those_of_torchmetrics() -> None:
    given: dict[str, Any] = {"num_classes": C, "ignore_index": IGNORED}
    wanted = {
        "mean iou": MulticlassJaccardIndex(average="macro", **given),
        "mean dice": MulticlassF1Score(average="macro", **given),
        "pixel accuracy": MulticlassAccuracy(average="micro", **given),
    }
    for score in mask_scores(predictions()):
        np.testing.assert_allclose(score.value, float(wanted[score.name](OUTPUTS, TARGETS)), rtol=1e-5)
        assert score.low < score.value < score.high


def test_a_sample_is_judged_by_the_classes_it_has() -> None:
    wanted = [
        float(MulticlassJaccardIndex(C, average="macro", ignore_index=IGNORED)(one[None], mask[None]))
        for one, mask in zip(OUTPUTS, TARGETS, strict=True)
    ]
    np.testing.assert_allclose(sample_iou(predictions()), wanted, rtol=1e-5)
    worst = int(np.argmin(wanted))
    assert task_of("segmentation").badness(predictions()).argmax() == worst
    assert said_of_mask(predictions(), worst).startswith(f"mean IoU {wanted[worst]:.2f}: d 0.00")


def test_figures() -> None:
    figures = {figure.name: figure for figure in mask_figures(predictions())}
    assert figures.keys() >= {"iou_per_class", "confusion_matrix_normalised", "confusions"}
    assert figures["confusions"].y_label == "pixels"
