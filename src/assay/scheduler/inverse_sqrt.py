from __future__ import annotations

import math
from typing import final


@final
class InverseSqrt:
    """Factor on the learning rate at a step, for `torch.optim.lr_scheduler.LambdaLR`.

    With w warmup steps, step t (from 0) has min((t + 1) / w, sqrt(w / (t + 1))): the schedule of Vaswani et
    al. 2017, *Attention is all you need*, equation 3, with the peak (at step w - 1) scaled to 1 instead of
    (d_model * w)^(-1/2), so that the optimizer's `lr` is the largest learning rate. It needs no number of
    steps and never reaches zero.

    Args:
        warmup_steps: Steps up to the peak, at least 1.

    Raises:
        ValueError: `warmup_steps` is below 1.
    """

    def __init__(self, warmup_steps: int) -> None:
        if warmup_steps < 1:
            raise ValueError(f"warmup_steps must be at least 1, got {warmup_steps}; use 4000")
        self.warmup_steps = warmup_steps

    def __call__(self, step: int) -> float:
        """Return the factor at `step`, counted from 0."""
        return min((step + 1) / self.warmup_steps, math.sqrt(self.warmup_steps / (step + 1)))
