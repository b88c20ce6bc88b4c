"""What `auto` stands for in a job: values that follow from its data once that is read."""

from __future__ import annotations

from typing import Any, Final

from omegaconf import DictConfig, OmegaConf, open_dict

from assay.config.omegaconf_internals import child_node, is_null, raw_value
from assay.config.tree import walk

RECIPE: Final = {
    "data.batch_size": ("batch_size", "auto"),
    "data.source.image_size": ("image_size", "auto"),
    "trainer.max_epochs": ("max_epochs", "30"),
    "trainer.channels_last": ("channels_last", "false"),
    "optimizer.lr": ("lr", "0.001"),
    "optimizer.weight_decay": ("weight_decay", "0.01"),
    "callbacks.early_stopping.patience": ("patience", "10"),
}
"""By key, where in `spec` the value is found, and what it is with data that tells nothing."""

OF_SPEC: Final = frozenset(f"spec.{name}" for name, _ in RECIPE.values())


def settle_recipe(config: DictConfig) -> None:
    """Let each key of the recipe that says `auto` refer to what the data will tell.

    Args:
        config: A job; changed in place.
    """
    settle_model(config)
    for key, found in RECIPE.items():
        if _raw(config, key) == "auto":
            OmegaConf.update(config, key, _reference(*found))


def settle_model(config: DictConfig) -> None:
    """Move the recipe of a model's YAML to the node `recipe`: it is no argument of the model's class.

    Args:
        config: A job; changed in place.
    """
    model = child_node(config, "model") if "model" in config else None
    if not isinstance(model, DictConfig) or is_null(model):
        return
    nodes = [model, *(entry.node for entry in walk(model) if isinstance(entry.node, DictConfig))]
    with open_dict(config):
        for node in nodes:
            if "recipe" in node and "_target_" in node:
                recipe = node.pop("recipe")
                if node is model:
                    config.recipe = recipe


def is_chosen(config: DictConfig, key: str) -> bool:
    """Whether a key of the recipe follows the data.

    Args:
        config: A job, not resolved.
        key: One of `RECIPE`.
    """
    return key in RECIPE and bool(_raw(config, key) == _reference(*RECIPE[key]))


def unsettled(key: str, raw: Any) -> Any:
    """What was typed for a value of a job: `auto` where it waits for the data."""
    return "auto" if key in RECIPE and raw == _reference(*RECIPE[key]) else raw


def _raw(config: DictConfig, key: str) -> Any:
    """What is written under a key, not resolved; None where there is nothing, or a node."""
    node: Any = config
    for part in key.split("."):
        inside = isinstance(node, DictConfig) and not is_null(node) and part in node
        node = child_node(node, part) if inside else None
    return None if node is None or OmegaConf.is_config(node) else raw_value(node)


def _reference(name: str, fallback: str) -> str:
    return f"${{oc.select:spec.{name},{fallback}}}"
