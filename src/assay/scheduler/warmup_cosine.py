from __future__ import annotations

import math
from typing import final


@final
class WarmupCosine:
    """Factor on the learning rate at a step, for `torch.optim.lr_scheduler.LambdaLR`.

    With w warmup steps of T in all, step t (from 0) has

        (t + 1) / (w + 1)                                                      t < w
        m + (1 - m) * (1 + cos(pi * min(1, (t - w) / (T - w)))) / 2            t >= w

    where m is `min_factor`. The first step learns already, the peak is step w, and m is reached at step T.
    The cosine is that of Loshchilov, Hutter 2017, *SGDR*, without restarts; the warmup that of Goyal et al.
    2017, *Accurate, large minibatch SGD*.

    Args:
        total_steps: Optimizer steps of the whole training.
        warmup_fraction: Part of them that is warmup, in [0, 1).
        warmup_steps: Number of warmup steps; if given, `warmup_fraction` is not read.
        min_factor: Factor at the end, in [0, 1].

    Raises:
        ValueError: A value is out of its range, or the warmup is as long as the training.
    """

    def __init__(
        self,
        total_steps: int,
        warmup_fraction: float = 0.0,
        warmup_steps: int | None = None,
        min_factor: float = 0.0,
    ) -> None:
        if total_steps < 1:
            raise ValueError(f"total_steps must be at least 1, got {total_steps}; set trainer.max_epochs")
        if not 0.0 <= warmup_fraction < 1.0:
            raise ValueError(f"warmup_fraction must be in [0, 1), got {warmup_fraction}; use 0.05")
        if not 0.0 <= min_factor <= 1.0:
            raise ValueError(f"min_factor must be in [0, 1], got {min_factor}; use 0.0")
        if warmup_steps is None:
            warmup_steps = math.floor(warmup_fraction * total_steps)
        if not 0 <= warmup_steps < total_steps:
            raise ValueError(
                f"warmup_steps must be 0 or more and below the {total_steps} steps of the training, "
                f"got {warmup_steps}; use fewer, or warmup_fraction"
            )
        self.total_steps = total_steps
        self.warmup_steps = warmup_steps
        self.min_factor = min_factor

    def __call__(self, step: int) -> float:
        """Return the factor at `step`, counted from 0."""
        if step < self.warmup_steps:
            return (step + 1) / (self.warmup_steps + 1)
        progress = min(1.0, (step - self.warmup_steps) / (self.total_steps - self.warmup_steps))
        return self.min_factor + (1.0 - self.min_factor) * 0.5 * (1.0 + math.cos(math.pi * progress))
