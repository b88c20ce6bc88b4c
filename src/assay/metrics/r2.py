from __future__ import annotations

import functools
from typing import final

import torch
from torch import Tensor
from torchmetrics import Metric

from assay.errors import check_numbers
from assay.torch_internals import widest_float


@final
class R2(Metric):
    """R² = 1 − Σ(y − ŷ)² / Σ(y − ȳ)², averaged over targets, as scikit-learn's `r2_score`.

    `torchmetrics.R2Score` takes sums of squares below 1e-4 for 0 and answers 1, and adds in float32, which
    leaves few digits where the mean is far larger than the spread. Here squares are of distances from the
    mean so far (Chan, Golub and LeVeque 1983), in float64 (float32 on `mps`). A target that never varies
    scores 1 if it is met exactly, else 0. NaN for fewer than two samples.

    Args:
        num_targets: T, numbers to predict per sample, at least 1.

    Raises:
        ValueError: If `num_targets` is less than 1.
    """

    is_differentiable = True
    higher_is_better = True
    full_state_update = False

    sums: Tensor
    """Of each target: samples, mean, squared distances from it, squared errors, least and greatest value."""

    def __init__(self, num_targets: int = 1) -> None:
        super().__init__()
        check_numbers("[1, inf)", num_targets=num_targets)
        self.num_targets = num_targets
        empty = [0.0, 0.0, 0.0, 0.0, torch.inf, -torch.inf]
        self.add_state("sums", torch.tensor(empty).repeat(num_targets, 1).T, dist_reduce_fx=None)

    def update(self, preds: Tensor, target: Tensor) -> None:
        """Add a batch."""
        if preds.shape != target.shape or target.shape[1:].numel() != self.num_targets:
            raise ValueError(
                f"R² needs predictions and targets [B, {self.num_targets}], got {list(preds.shape)} and "
                f"{list(target.shape)}."
            )
        if not len(target):
            return
        dtype = widest_float(target.device)
        target = target.reshape(-1, self.num_targets).to(dtype)
        error = target - preds.reshape(-1, self.num_targets).to(dtype)
        count = torch.full_like(target[0], len(target))
        mean = target.mean(dim=0)
        squares = (target - mean).square().sum(dim=0), error.square().sum(dim=0)
        batch = torch.stack([count, mean, *squares, *target.aminmax(dim=0)])
        # Not in place: the state starts as float32, so that the module can move to any device.
        self.sums = _add(self.sums.to(dtype), batch)

    def compute(self) -> Tensor:
        """R², averaged over targets: a scalar."""
        # With several ranks the sums of each.
        total, _, spread, error, low, high = functools.reduce(
            _add, self.sums.reshape(-1, 6, self.num_targets)
        )
        varies = high > low
        score = torch.where(
            varies, 1 - error / torch.where(varies, spread, 1), (error == 0).to(error.dtype)
        )
        return torch.where(total[0] < 2, torch.nan, score.mean())


def _add(first: Tensor, second: Tensor) -> Tensor:
    """Combine the sums of two sets of samples, `[6, T]` each."""
    count = (first[0] + second[0]).clamp_min(1)
    move = second[1] - first[1]
    mean = first[1] + move * second[0] / count
    spread = first[2] + second[2] + move.square() * first[0] * second[0] / count
    lowest = torch.minimum(first[4], second[4])
    highest = torch.maximum(first[5], second[5])
    return torch.stack(
        [first[0] + second[0], mean, spread, first[3] + second[3], lowest, highest]
    )
