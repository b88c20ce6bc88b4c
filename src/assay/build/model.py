"""The model of a job, with its fine-tuning."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

import torch
from omegaconf import DictConfig, open_dict

from assay.build.build_error import build_error
from assay.build.node import build
from assay.config.serialize import value_of
from assay.errors import ConfigError
from assay.finetune.lora import LoRA, adapted_in, merge
from assay.targets.allowed_targets import trusted_in
from assay.targets.resolve import resolve

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor, nn

    from assay.finetune.interface import FineTuning


def build_model(config: DictConfig) -> tuple[nn.Module, FineTuning | None]:
    """The model with its initial weights, frozen and adapted as `finetune` says, and what does so.

    Raises:
        ConfigError: A node cannot be built as it is written, or the two do not go together.
    """
    model: nn.Module = build(config, "model")
    finetune: FineTuning | None = build(config, "finetune") if config.get("finetune") else None
    if finetune is not None:
        try:
            finetune.prepare(model)
        except ValueError as error:
            raise build_error(error, config, "finetune") from error
    return model, finetune


def build_trained(config: DictConfig, state: Mapping[str, Tensor]) -> nn.Module:
    """The model of a run with its trained weights, as plain as one that was never fine-tuned.

    Args:
        config: Of the run, with its `spec`.
        state: Of the model.

    Raises:
        ConfigError: A node cannot be built as it is written.
        RuntimeError: The weights are not those of the model.
    """
    if has_weights(config):
        config = config.copy()
        with open_dict(config):
            config.model.weights = None  # they are about to be replaced, and may be gone by now
    model: Any = build(config, "model")
    if not isinstance(model, torch.nn.Module):
        raise ConfigError("a torch.nn.Module was expected", key="model")
    finetune = build(config, "finetune") if config.get("finetune") else None
    if isinstance(finetune, LoRA):
        finetune.insert(model, adapted_in(state))
    model.load_state_dict(state)
    merge(model)
    return model


def has_weights(config: DictConfig) -> bool:
    """Whether the model starts from weights that the key `model.weights` names."""
    node = config.get("model")
    if not isinstance(node, DictConfig):
        return False
    return str(node.get("_target_")).startswith("assay.model.") and node.get("weights") is not None


def asked_of_model(config: DictConfig, method: str) -> Any:
    """What the model's class answers before it is built; None where it has no such method, or no weights.

    Args:
        config: The job.
        method: `trained_on` or `to_download`; called with what it asks for of the model's node.

    Raises:
        ConfigError: It refuses the name or the weights.
    """
    if not has_weights(config) or not isinstance(config.model.weights, str):  # its type is told elsewhere
        return None
    kind = resolve("model", str(config.model._target_), trusted_in(config))
    asked = getattr(kind, method, None)
    names = [] if asked is None else list(inspect.signature(asked).parameters)
    if asked is None or not all(name in config.model for name in names):
        return None
    try:
        return asked(**{name: value_of(config, f"model.{name}") for name in names})
    except (ValueError, ModuleNotFoundError) as error:
        raise build_error(error, config, "model") from error
