"""Do the chosen loss, model and data go together?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from assay.errors import ConfigError

if TYPE_CHECKING:
    from omegaconf import DictConfig
    from torch import nn

_REAL_VALUED = (torch.nn.MSELoss, torch.nn.L1Loss, torch.nn.HuberLoss, torch.nn.SmoothL1Loss)
SUITS = {
    "multiclass": "loss=cross_entropy metrics=multiclass",
    "binary": "loss=bce_with_logits metrics=binary",
    "multilabel": "loss=bce_with_logits metrics=multilabel",
    "regression": "loss=mse metrics=regression",
}
"""What to type for the data of a task."""


def num_outputs(config: DictConfig, loss: nn.Module | None) -> int:
    """How many values the model must return for a sample: data and loss decide together.

    Args:
        config: The job, with its `spec`.
        loss: Its `kind`, where it has one, tells one logit a label from one a class; None for a module of
            somebody's own.
    """
    spec = config.spec
    if spec.task == "regression":
        return int(spec.num_targets)
    if spec.task == "binary" and getattr(loss, "kind", None) == "binary":
        return 1
    return int(spec.num_classes)


def check_fit(config: DictConfig, loss: Any) -> None:
    """Refuse a loss that cannot take the data's targets.

    Args:
        config: The job, with its `spec`.
        loss: Its class (or what makes it): one that does not fit may not even be made with this data.

    Raises:
        ConfigError: The message says which loss and metrics suit the data.
    """
    task, kind = config.spec.task, getattr(loss, "kind", None)
    name, hint = getattr(loss, "__name__", str(loss)), SUITS[config.spec.task]
    if isinstance(loss, type) and issubclass(loss, _REAL_VALUED) and task != "regression":
        raise ConfigError(
            f"{name} compares real values, but the data has {targets_in_words(config)}", key="loss", hint=hint
        )
    wrong = {
        "regression": kind in ("multiclass", "binary", "embedding"),
        "multilabel": kind in ("multiclass", "embedding"),
        "multiclass": kind == "binary",
        "binary": False,
    }[task]
    if wrong:
        raise ConfigError(f"{name} cannot be used with {targets_in_words(config)}", key="loss", hint=hint)


def targets_in_words(config: DictConfig) -> str:
    """What the data has to be predicted.

    Args:
        config: The job, with its `spec`.
    """
    spec = config.spec
    return {
        "regression": f"{spec.num_targets} real-valued target(s)",
        "multilabel": f"{spec.num_classes} labels of which several can be on",
        "multiclass": f"{spec.num_classes} classes of which one is right",
        "binary": "two classes",
    }[str(spec.task)]
