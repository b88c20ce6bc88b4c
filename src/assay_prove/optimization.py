"""Optimizer and scheduler with a job's own values, as Lightning makes them when training begins."""

from __future__ import annotations

import math
import time
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, final

from omegaconf import DictConfig, OmegaConf
from torch import nn
from torch.optim.lr_scheduler import ReduceLROnPlateau

from assay.assemble.node import build_error

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from torch.optim import Optimizer

    from assay.assemble.recipe import RunLength


_UNBOUNDED_EPOCHS = 10
_SHOWN = 1_000_000
"""Steps of a constant learning rate that are written down."""
_OFTEN = 100
"""Steps between two looks at the clock."""
_IDLE_SHARE = 0.1
_LOW = 0.5
_HIGH = 10.0


@final
@dataclass(frozen=True)
class Curve:
    """What a learning rate does."""

    rates: Sequence[float] = ()
    note: str = ""
    given: float = 0.0
    is_whole_schedule: bool = False

    def warnings(self) -> Iterator[str]:
        """What is unlikely to be meant, in words."""
        if not self.is_whole_schedule or len(self.rates) < 2:
            return
        total = len(self.rates)
        highest = max(self.rates)
        last = self.rates[-1]
        idle = next((n for n, rate in enumerate(reversed(self.rates)) if rate), total)
        if highest == min(self.rates):
            yield f"scheduler: the learning rate stays at {last:.3g} in all {total:,} steps of this run"
        elif idle > max(1, _IDLE_SHARE * total):
            yield f"scheduler: the learning rate is 0 from step {total - idle + 1:,} of {total:,} on"
        if highest < _LOW * self.given:
            yield (
                f"scheduler: the learning rate rises to {highest:.3g} at most in the {total:,} steps of this "
                f"run; optimizer.lr is {self.given:.3g}"
            )
        if last > _HIGH * max(self.given, self.rates[0]):
            yield f"scheduler: the learning rate rises to {last:.3g}; optimizer.lr is {self.given:.3g}"


def lr_curve(
    optimizer: Optimizer,
    scheduler: Any,
    schedule: Mapping[str, Any],
    length: RunLength,
    seconds: float,
) -> Curve:
    """Make a scheduler, if there is one, and step it as Lightning will."""
    total = length.total_steps
    notes = []
    steps = total or 0
    if total is None:
        notes = [f"{_UNBOUNDED_EPOCHS} epochs of a run that time or a callback ends"]
        steps = _UNBOUNDED_EPOCHS * length.steps_per_epoch
    groups = optimizer.param_groups
    initial = _highest(optimizer, 1)
    if scheduler is not None:
        scheduler = scheduler(optimizer)
    if len({group["lr"] for group in groups}) > 1:
        notes.append(f"the highest of {len(groups)} parameter groups")
    rates = [_highest(optimizer, 1)]
    plateau = isinstance(scheduler, ReduceLROnPlateau)
    if plateau:
        notes.append("lowered when the monitored metric stops improving, which is not known yet")
    if scheduler is None or plateau:
        _check_moves(rates, initial)
        if steps > _SHOWN:
            notes.append(f"the first {_SHOWN:,} of {steps:,} steps")
        return Curve(rates * min(steps, _SHOWN), "; ".join(notes))
    complete = total is not None
    end = time.perf_counter() + seconds
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch asks for steps of the optimizer in between
        for step in range(1, steps):
            if _is_due(step, schedule, length):
                scheduler.step()
            rates.append(_highest(optimizer, step + 1))
            if step % _OFTEN == 0 and time.perf_counter() > end:
                notes.append(f"the first {step + 1:,} of {steps:,} steps")
                complete = False
                break
    if complete:
        _check_moves(rates, initial)
    return Curve(rates, "; ".join(notes), initial, complete)


def _is_due(step: int, schedule: Mapping[str, Any], length: RunLength) -> bool:
    """Whether Lightning steps the scheduler after this optimizer step; it counts an epoch's batches anew."""
    frequency = int(schedule.get("frequency") or 1)
    if schedule.get("interval", "epoch") == "epoch":
        return step % (length.steps_per_epoch * frequency) == 0
    return length.batch_of(step) % frequency == 0


def _highest(optimizer: Optimizer, step: int) -> float:
    rates = [float(group["lr"]) for group in optimizer.param_groups]
    for rate in rates:
        if not 0 <= rate < math.inf:
            raise ValueError(f"lr is {rate:g} at step {step:,}; expected at least 0")
    return max(rates)


def _check_moves(rates: Sequence[float], initial: float) -> None:
    if not any(rates):
        why = ": nothing would be trained"
        if initial:
            why = f", although {initial:g} was given"
        raise ValueError(f"lr is 0 in every step{why}")


def follow_lr(
    config: DictConfig,
    parts: Mapping[str, Any],
    model: nn.Module,
    length: RunLength,
    seconds: float,
) -> Curve:
    """Make the optimizer of these parts and step its scheduler through the run."""
    if any(isinstance(p, nn.UninitializedParameter) for p in model.parameters()):
        return Curve(note="the parameters are known only after a first batch")
    if not length.is_known:
        return Curve(note="the data does not state how many batches it has")
    key = "param_groups"
    try:
        peak = getattr(parts["optimizer"], "keywords", {}).get("lr") or 0.0
        groups = [p for p in model.parameters() if p.requires_grad]
        if parts["param_groups"] is not None:
            groups = parts["param_groups"](model, peak)
        key = "optimizer"
        optimizer = parts["optimizer"](groups)
        if any(group["lr"] is None for group in optimizer.param_groups):
            return Curve(note="the optimizer chooses the learning rate itself")
        key = "param_groups"
        if not 0 < peak < math.inf:
            key = "optimizer"
        initial = _highest(optimizer, 1)
        _check_moves([initial], initial)
        key = "scheduler"
        return lr_curve(optimizer, parts["scheduler"], parts["schedule"], length, seconds)
    except Exception as error:
        raise build_error(error, config, key) from error


def unfinished_schedule_warnings(config: DictConfig, length: RunLength) -> list[str]:
    """What a schedule counts that the run is too short for, in words."""
    node = config.get("scheduler")
    if not isinstance(node, DictConfig) or length.total_steps is None:
        return []
    interval = int(node.get("frequency") or 1)
    unit = "steps"
    if node.get("interval", "epoch") == "epoch":
        interval *= length.steps_per_epoch
        unit = "epochs"
    steps = length.total_steps // interval
    return [
        f"scheduler.{name}={count}: this run has {steps:,} {unit}, so the schedule will not finish"
        for name in ("T_max", "total_iters", "total_steps", "lr_lambda.total_steps")
        if isinstance(count := OmegaConf.select(node, name), int) and count > steps + 1
    ]
