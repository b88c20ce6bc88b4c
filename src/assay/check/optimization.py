"""Optimizer and scheduler with a job's own values, as Lightning makes them when training begins."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import nn

from assay.assemble import build_optimization
from assay.check.build_error import build_error
from assay.check.schedule import lr_curve

if TYPE_CHECKING:
    from collections.abc import Sequence

    from omegaconf import DictConfig


def follow_lr(config: DictConfig, model: nn.Module, seconds: float) -> tuple[Sequence[float], str]:
    """Make the optimizer and step its scheduler through the run.

    Args:
        config: The job, with its `spec`.
        model: Its parameters, real or fake, are left as they are.
        seconds: The longest time to take.

    Returns:
        As `assay.check.schedule.lr_curve`.

    Raises:
        ConfigError: Naming the value that is out of its range.
    """
    parts = build_optimization(config)
    if any(isinstance(p, nn.UninitializedParameter) for p in model.parameters()):
        return (), "the parameters are known only after a first batch"
    key = "param_groups"
    try:
        peak = getattr(parts["optimizer"], "keywords", {}).get("lr", 0.0)
        trained = [p for p in model.parameters() if p.requires_grad]
        groups = trained if parts["param_groups"] is None else parts["param_groups"](model, peak)
        key = "optimizer"
        optimizer = parts["optimizer"](groups)
        key = "scheduler"
        scheduler = None if parts["scheduler"] is None else parts["scheduler"](optimizer)
        return lr_curve(optimizer, scheduler, parts["schedule"], config.spec, seconds)
    except Exception as error:
        raise build_error(error, config, key) from error
