"""A model or a module that holds no weights."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from assay.build.model import build_model
from assay.build.node import build

if TYPE_CHECKING:
    from lightning.pytorch.plugins import Precision
    from omegaconf import DictConfig
    from torch import nn

    from assay.finetune.interface import FineTuning


def model_on_meta(config: DictConfig, precision: Precision) -> tuple[nn.Module, FineTuning | None]:
    """The model and its fine-tuning; with weights where it computes with them while it is made.

    Raises:
        ConfigError: The model cannot be made.
    """
    try:
        with torch.device("meta"):
            model, finetune = build_model(config)
    except (Exception, SystemExit):
        model, finetune = build_model(config)  # an error now is one of the config
    if config.trainer.get("channels_last"):
        model.to(memory_format=torch.channels_last)
    return precision.convert_module(model), finetune


def module_on_meta(config: DictConfig, precision: Precision) -> nn.Module:
    """A LightningModule of somebody's own, likewise.

    Raises:
        ConfigError: The module cannot be made.
    """
    try:
        with torch.device("meta"):
            built: nn.Module = build(config, "module")
    except (Exception, SystemExit):
        built = build(config, "module")  # an error now is one of the config
    return precision.convert_module(built)
