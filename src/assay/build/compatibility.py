"""Do the chosen loss, model and data go together?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from omegaconf import DictConfig, ListConfig, OmegaConf

from assay.config.tree import walk
from assay.errors import ConfigError, DataError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from torch import nn

_REAL_VALUED = (torch.nn.MSELoss, torch.nn.L1Loss, torch.nn.HuberLoss, torch.nn.SmoothL1Loss)
_OWN_UNIT = (
    *(torch.nn.PoissonNLLLoss, torch.nn.SoftMarginLoss, torch.nn.HingeEmbeddingLoss, torch.nn.KLDivLoss),
    *(torch.nn.BCELoss, torch.nn.BCEWithLogitsLoss, torch.nn.MultiLabelSoftMarginLoss),
)
"""Losses for counts, signs or probabilities."""
SUITS = {
    "multiclass": "loss=cross_entropy metrics=multiclass",
    "binary": "loss=bce_with_logits metrics=binary",
    "multilabel": "loss=bce_with_logits metrics=multilabel",
    "regression": "loss=mse metrics=regression",
}
"""What to type for the data of a task."""
_STATED = (
    *("task", "input_shape", "num_classes", "num_targets", "num_train", "num_val", "num_test"),
    *("class_counts", "input_dtype"),
)


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
    if (
        OmegaConf.select(config, "data.standardize_targets")
        and task == "regression"
        and isinstance(loss, type)
        and issubclass(loss, _OWN_UNIT)
    ):
        raise ConfigError(
            f"{name} compares with the targets themselves, but would see (target - mean) / std",
            key="loss",
            hint="data.standardize_targets=false",
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


def check_outputs(config: DictConfig, loss: nn.Module, outputs: Sequence[int]) -> None:
    """Refuse a model that returns something else than this loss compares with the targets.

    Args:
        config: The job, with its `spec`.
        loss: As it will be used.
        outputs: Shape of the model's outputs for a batch.

    Raises:
        ConfigError: Naming both shapes. (torch would broadcast a wrong shape without a word.)
    """
    by_class = getattr(loss, "kind", None) in ("multiclass", "binary")
    if not (by_class or isinstance(loss, _REAL_VALUED)):
        return  # an embedding, or a loss of somebody's own, takes any width
    wanted = int(config.spec.num_outputs)
    if tuple(outputs[1:]) != (wanted,):
        sized = [] if len(outputs) != 2 else _sized(config, outputs[1])
        raise ConfigError(
            f"gives {list(outputs[1:])} values a sample; {type(loss).__name__} needs [{wanted}] for "
            f"{targets_in_words(config)}",
            key=sized[0] if len(sized) == 1 else "model",
            hint="let the model's last layer have ${spec.num_outputs} outputs",
        )


def _sized(config: DictConfig, size: int) -> list[str]:
    """Where the model's node says so many."""
    return [
        entry.key
        for entry in walk(config.model, "model")
        if isinstance(entry.parent, DictConfig) and not entry.is_container and entry.raw == size
    ]


def check_stated(stated: Mapping[str, Any], config: DictConfig) -> None:
    """Refuse data that is not what its YAML states, which the job was checked with.

    Args:
        stated: The `spec` of the check; empty for none.
        config: The job, with the `spec` of the data that was read.

    Raises:
        DataError: Naming the difference.
    """
    for name in _STATED:
        said, found = stated.get(name), OmegaConf.select(config, f"spec.{name}")
        found = list(found) if isinstance(found, ListConfig) else found
        if stated and said != found:
            raise DataError(
                f"data.spec: by it {name} is {said}; the data has {found}",
                hint="correct `spec` in the data's YAML, or leave it out: ~data.spec",
            )
