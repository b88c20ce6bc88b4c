from __future__ import annotations

import math
from typing import final

from assay.errors import check_numbers


@final
class WarmupCosine:
    """Factor on the learning rate at a step, for `torch.optim.lr_scheduler.LambdaLR`.

    With w warmup steps of T in all, step t (from 0) has

        (t + 1) / (w + 1)                                                      t < w
        m + (1 - m) * (1 + cos(pi * min(1, (t - w) / (T - w)))) / 2            t >= w

    where m is `min_factor`. The first step has a factor above 0, the peak is step w, and m is reached at step
    T. The cosine is that of Loshchilov, Hutter 2017, *SGDR*, without restarts; the warmup that of Goyal et
    al. 2017, *Accurate, large minibatch SGD*.

    Args:
        total_steps: Optimizer steps of the whole training.
        warmup_fraction: Part of them that is warmup, in [0, 1).
        warmup_steps: Number of warmup steps; if set, `warmup_fraction` is ignored.
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
        check_numbers("[1, inf)", total_steps=total_steps)
        check_numbers("[0, 1)", warmup_fraction=warmup_fraction)
        check_numbers("[0, 1]", min_factor=min_factor)
        if warmup_steps is None:
            warmup_steps = math.floor(warmup_fraction * total_steps)
        check_numbers(f"[0, {total_steps})", warmup_steps=warmup_steps)
        self.total_steps = total_steps
        self.warmup_steps = warmup_steps
        self.min_factor = min_factor

    def __call__(self, step: int) -> float:
        """Return the factor at `step`, counted from 0."""
        if step < self.warmup_steps:
            return (step + 1) / (self.warmup_steps + 1)
        progress = min(1.0, (step - self.warmup_steps) / (self.total_steps - self.warmup_steps))
        return self.min_factor + (1.0 - self.min_factor) * 0.5 * (
            1.0 + math.cos(math.pi * progress)
        )
