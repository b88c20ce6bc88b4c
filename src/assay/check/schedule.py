"""The learning rate over the steps of a run, followed through its own scheduler."""

from __future__ import annotations

import time
import warnings
from typing import TYPE_CHECKING, Any

from torch.optim.lr_scheduler import ReduceLROnPlateau

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from torch.optim import Optimizer


def lr_curve(
    optimizer: Optimizer, scheduler: Any, schedule: Mapping[str, Any], spec: Mapping[str, Any], seconds: float
) -> tuple[Sequence[float], str]:
    """Step a scheduler as Lightning will.

    Args:
        optimizer: Its steps are left out.
        scheduler: Over this optimizer; None for a constant learning rate.
        schedule: Lightning's `interval` and `frequency`.
        spec: Has `steps_per_epoch` and `total_steps`.
        seconds: The longest time to take.

    Returns:
        Learning rate of each step, of the parameter group with the highest one; and what the curve does not
        show, in words.
    """
    total, an_epoch = int(spec["total_steps"]), int(spec["steps_per_epoch"])
    notes = []
    groups = optimizer.param_groups
    if len({group["lr"] for group in groups}) > 1:
        notes.append(f"the highest of {len(groups)} parameter groups")
    rates = [_highest(optimizer)]
    if isinstance(scheduler, ReduceLROnPlateau):
        notes.append("lowered when the monitored metric stands still, which nobody knows yet")
    if scheduler is None or isinstance(scheduler, ReduceLROnPlateau):
        return rates * total, "; ".join(notes)
    every = int(schedule.get("frequency") or 1)
    every *= an_epoch if schedule.get("interval", "epoch") == "epoch" else 1
    end = time.perf_counter() + seconds
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch asks for steps of the optimizer in between
        for step in range(1, total):
            if step % every == 0:
                scheduler.step()
            rates.append(_highest(optimizer))
            if step % 100 == 0 and time.perf_counter() > end:
                notes.append(f"the first {step + 1:,} of {total:,} steps")
                break
    return rates, "; ".join(notes)


def _highest(optimizer: Optimizer) -> float:
    return max(float(group["lr"]) for group in optimizer.param_groups)
