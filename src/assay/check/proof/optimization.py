"""Optimizer and scheduler with a job's own values, as Lightning makes them when training begins."""

from __future__ import annotations

import math
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from omegaconf import DictConfig, OmegaConf
from torch import nn

from assay.build.build_error import build_error
from assay.build.module import build_optimization
from assay.check.proof.schedule import Curve, lr_curve
from assay.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable

    from assay.build.trainer.run_length import RunLength
    from assay.errors import AssayError


def follow_lr(config: DictConfig, model: nn.Module, length: RunLength, seconds: float) -> Curve:
    """Make the optimizer and step its scheduler through the run.

    Args:
        config: The job, with its `spec`.
        model: Its parameters, real or fake, are left as they are.
        length: Of the run.
        seconds: The longest time to take.

    Raises:
        ConfigError: Naming the value that is out of its range.
    """
    parts = build_optimization(config)
    if any(isinstance(p, nn.UninitializedParameter) for p in model.parameters()):
        return Curve(note="the parameters are known only after a first batch")
    if not length.is_known:
        return Curve(note="the data does not tell how many batches it has")
    key = "param_groups"
    try:
        peak = getattr(parts["optimizer"], "keywords", {}).get("lr", 0.0)
        trained = [p for p in model.parameters() if p.requires_grad]
        groups = trained if parts["param_groups"] is None else parts["param_groups"](model, peak)
        key = "optimizer"
        optimizer = parts["optimizer"](groups)
        key = "optimizer" if not 0 < peak < math.inf else "param_groups"
        given = lr_curve(optimizer, None, {}, length, seconds).given
    except Exception as error:
        raise build_error(error, config, key) from error
    before = [dict(group) for group in optimizer.param_groups]

    def followed(scheduler: Any) -> Curve:
        for group, values in zip(optimizer.param_groups, before, strict=True):
            group.clear()
            group.update(values)
        made = None if scheduler is None else scheduler(optimizer)
        return lr_curve(optimizer, made, parts["schedule"], length, seconds, given=given)

    try:
        return followed(parts["scheduler"])
    except Exception as error:
        raise _scheduler_error(error, config, parts["scheduler"], followed) from error


def unfinished(config: DictConfig, length: RunLength) -> list[str]:
    """What a schedule counts that the run is too short for, in words."""
    node = config.get("scheduler")
    if not isinstance(node, DictConfig) or length.total_steps is None:
        return []
    an_epoch = node.get("interval", "epoch") == "epoch"
    steps = (
        length.total_steps // (length.steps_per_epoch if an_epoch else 1) // int(node.get("frequency") or 1)
    )
    what = "epochs" if an_epoch else "steps"
    return [
        f"scheduler.{name}={count}: this run has {steps:,} {what}, so the schedule will not be finished"
        for name in ("T_max", "total_iters", "total_steps", "lr_lambda.total_steps")
        if isinstance(count := OmegaConf.select(node, name), int) and count > steps + 1
    ]


def _scheduler_error(
    error: Exception, config: DictConfig, scheduler: Any, followed: Callable[[Any], Curve]
) -> AssayError:
    """With the argument at fault: the one number without which the schedule can be followed."""
    told = build_error(error, config, "scheduler")
    given = getattr(scheduler, "keywords", {})
    if not isinstance(told, ConfigError) or told.key != "scheduler":
        return told
    for name, value in given.items():
        if isinstance(value, bool) or not isinstance(value, int | float):
            continue
        for other in (1, 0.5):
            with suppress(Exception):
                followed(partial(scheduler.func, *scheduler.args, **{**given, name: other}))
                text = str(error) if isinstance(error, ValueError) else "cannot be followed with this value"
                key = f"scheduler.{name}"
                return ConfigError(f"{value:g} was given; {text}", key=key, hint=f"for example {key}={other}")
    return told
