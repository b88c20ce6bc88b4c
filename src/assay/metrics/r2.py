from __future__ import annotations

from typing import final

import torch
from torch import Tensor
from torchmetrics import Metric

from assay.errors import check_numbers


@final
class R2(Metric):
    """R² = 1 − Σ(y − ŷ)² / Σ(y − ȳ)², averaged over targets, as scikit-learn's `r2_score`.

    `torchmetrics.R2Score` takes sums of squares below 1e-4 for 0 and answers 1, and adds in float32, which
    leaves few digits where the mean is far larger than the spread. Here sums are float64 (float32 on `mps`,
    which has no float64). A target that never varies scores 1 if it is met exactly, else 0. NaN for fewer
    than two samples.

    Args:
        num_targets: T, numbers to predict per sample, at least 1.

    Raises:
        ValueError: If `num_targets` is less than 1.
    """

    is_differentiable = True
    higher_is_better = True
    full_state_update = False

    sum_target: Tensor
    sum_squared_target: Tensor
    sum_squared_error: Tensor
    total: Tensor

    def __init__(self, num_targets: int = 1) -> None:
        super().__init__()
        check_numbers("[1, inf)", num_targets=num_targets)
        self.num_targets = num_targets
        for name in ("sum_target", "sum_squared_target", "sum_squared_error"):
            self.add_state(name, default=torch.zeros(num_targets), dist_reduce_fx="sum")
        self.add_state("total", default=torch.zeros((), dtype=torch.int64), dist_reduce_fx="sum")

    def update(self, preds: Tensor, target: Tensor) -> None:
        """Add a batch."""
        if preds.shape != target.shape or target.shape[1:].numel() != self.num_targets:
            raise ValueError(
                f"R² needs predictions and targets [B, {self.num_targets}], got {list(preds.shape)} and "
                f"{list(target.shape)}."
            )
        dtype = torch.float32 if target.device.type == "mps" else torch.float64
        target = target.reshape(-1, self.num_targets).to(dtype)
        error = target - preds.reshape(-1, self.num_targets).to(dtype)
        # Not in place: the states start as float32, so that the module can move to any device.
        self.sum_target = self.sum_target + target.sum(dim=0)
        self.sum_squared_target = self.sum_squared_target + target.square().sum(dim=0)
        self.sum_squared_error = self.sum_squared_error + error.square().sum(dim=0)
        self.total = self.total + target.shape[0]

    def compute(self) -> Tensor:
        """R², averaged over targets: a float32 scalar."""
        spread = self.sum_squared_target - self.sum_target.square() / self.total
        rounding = torch.finfo(spread.dtype).eps * self.total * self.sum_squared_target
        score = 1 - self.sum_squared_error / spread
        constant = (self.sum_squared_error == 0).to(score.dtype)
        score = torch.where(spread > rounding, score, constant)
        return torch.where(self.total < 2, torch.nan, score.mean()).float()
