"""Ordinal regression, a custom task: classes that have an order, such as grades."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, final

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torchmetrics import Metric
from typing_extensions import override

from assay.task.classification import SingleLabel
from assay.task.evaluator import Score, bootstrapped

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from assay.task.predictions import StoredPredictions


@final
class Ordinal(SingleLabel):
    """One of C ordered classes per sample; the model returns C - 1 logits, each of a next step upwards."""

    suits = "loss=ordinal metrics=ordinal"
    loss_kinds = frozenset({"ordinal"})
    unit = ("grade", "grades")
    form = "one grade per sample, counted from 0, [N]"

    @override
    def num_outputs(self, spec: Mapping[str, Any], loss_kind: str | None = None) -> int:
        """C - 1: the lowest class is reached in any case."""
        return int(spec["num_classes"]) - 1

    @override
    def scores(self, predictions: StoredPredictions) -> list[Score]:
        """Mean error in grades and quadratic kappa (Cohen 1968) first, then those of classes."""
        predicted, targets = predictions.outputs.argmax(1), predictions.targets
        if targets is None:
            return []
        grades = np.arange(predictions.outputs.shape[1])
        cost = (grades[:, None] - grades) ** 2

        def statistic(weights: NDArray[Any]) -> dict[str, float]:
            counts = np.zeros(cost.shape)
            np.add.at(counts, (targets, predicted), weights)
            by_chance = np.outer(counts.sum(1), counts.sum(0)) / counts.sum()
            kappa = 1 - (cost * counts).sum() / (cost * by_chance).sum()
            error = (np.abs(predicted - targets) * weights).sum() / weights.sum()
            return {"error in grades": float(error), "quadratic kappa": float(kappa)}

        return [*bootstrapped(statistic, len(targets)), *super().scores(predictions)]

    @override
    def error_scores(self, predictions: StoredPredictions) -> NDArray[Any]:
        """How many grades the expected one is from the right one."""
        if predictions.targets is None:
            return np.full(len(predictions.outputs), np.nan)
        expected = predictions.outputs @ np.arange(predictions.outputs.shape[1])
        distance: NDArray[Any] = np.abs(expected - predictions.targets)
        return distance

    @override
    def hardest_caption(self, predictions: StoredPredictions) -> str:
        """Said above the pictures or rows of the most wrong samples."""
        return "Largest distance of the expected grade from the true one first."


@final
class ContinuationRatio(nn.Module):
    """Negative log-likelihood of a chain of steps: P(y > k | y >= k) is the sigmoid of logit k.

    The probabilities of the classes always add up to 1, and P(y > k) never rises with k (Fienberg 1980, "The
    Analysis of Cross-Classified Categorical Data", chapter 6; as a network: Shi, Cao and Raschka 2021, CORN).
    """

    kind: ClassVar[str] = "ordinal"

    def forward(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """The mean over a batch, of logits `[B, C - 1]` and grades int64 `[B]` or soft `[B, C]`."""
        by_class = self._log_probabilities(outputs)
        if targets.is_floating_point():
            return -(targets * by_class).sum(1).mean()
        return F.nll_loss(by_class, targets)

    def probabilities(self, outputs: Tensor) -> Tensor:
        """Of each class, float `[B, C]`."""
        return self._log_probabilities(outputs.float()).exp()

    def _log_probabilities(self, outputs: Tensor) -> Tensor:
        return F.pad(F.logsigmoid(outputs).cumsum(1), (1, 0)) + F.pad(F.logsigmoid(-outputs), (0, 1))


@final
class GradeError(Metric):
    """Mean distance of the most likely class from the right one, in grades."""

    higher_is_better = False
    total: Tensor
    count: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.add_state("total", torch.tensor(0.0), dist_reduce_fx="sum")
        self.add_state("count", torch.tensor(0.0), dist_reduce_fx="sum")

    @override
    def update(self, predictions: Tensor, targets: Tensor) -> None:
        """Of probabilities `[B, C]` and grades `[B]`."""
        self.total += (predictions.argmax(1) - targets).abs().sum()
        self.count += len(targets)

    @override
    def compute(self) -> Tensor:
        return self.total / self.count
