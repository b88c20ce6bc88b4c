"""What `auto` stands for in a job: values that follow from its data, and `optimizer.fused`. No torch."""

from __future__ import annotations

import platform
from typing import Any, Final

from omegaconf import DictConfig, OmegaConf, open_dict

from assay.config.omegaconf_internals import child_node, is_null, raw_value
from assay.config.serialize import value_of
from assay.config.tree import walk
from assay.errors import ConfigError

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
    """Let each key of the recipe that says `auto` refer to what the data will tell."""
    settle_model(config)
    for key, found in RECIPE.items():
        if _raw(config, key) == "auto":
            OmegaConf.update(config, key, _reference(*found))


def settle_model(config: DictConfig) -> None:
    """Move the recipe of a model's YAML to the node `recipe`: it is no argument of the model's class."""
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
    """Whether a key of the recipe follows the data."""
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


AUTO: Final = "auto"
DECIDE: Final = (
    *("optimizer.fused", "optimizer.capturable", "optimizer.differentiable", "optimizer.foreach"),
    *("trainer.accelerator", "trainer.gradient_clip_val", "trainer.precision"),
)
"""Keys that decide it, beside the classes."""
_CLASSES: Final = ("Adagrad", "Adam", "AdamW", "SGD")
"""Of `torch.optim`, those that take `fused`."""
_SCALED: Final = ("16-mixed", "16", 16)
_MIXED: Final = ("bf16-mixed", "bf16", *_SCALED)


def settle_fused(config: DictConfig) -> None:
    """Replace `optimizer.fused: auto` by true or null: what a run records is what it does everywhere."""
    name = _class_of(config)
    if name and value_of(config, "optimizer.fused") == AUTO:
        config.optimizer.fused = True if _suits(config, name) else None


def check_fused(config: DictConfig) -> None:
    """Refuse a fused optimizer where Lightning would do so in the first step."""
    if _class_of(config) and value_of(config, "optimizer.fused") is True and _clips_mixed(config):
        raise ConfigError(
            "in mixed precision Lightning clips no gradients of a fused optimizer",
            key="optimizer.fused",
            hint="optimizer.fused=null",
        )


def _class_of(config: DictConfig) -> str:
    """The class of torch's that can be fused; empty for others."""
    home, _, name = str(value_of(config, "optimizer._target_")).rpartition(".")
    return name if name in _CLASSES and home in ("torch.optim", f"torch.optim.{name.lower()}") else ""


def _suits(config: DictConfig, name: str) -> bool:
    """Whether torch and Lightning do with a fused kernel what they do without one."""
    model, accelerator = config.get("model"), value_of(config, "trainer.accelerator")
    may_be_mps = accelerator == "mps" or (accelerator != "cpu" and platform.system() == "Darwin")
    return (
        not any(value_of(config, f"optimizer.{key}") for key in ("capturable", "differentiable"))
        and value_of(config, "optimizer.foreach") is None
        and value_of(config, "trainer.precision") not in _SCALED
        and accelerator in (None, "auto", "cpu", "cuda", "gpu", "mps")
        and not _clips_mixed(config)
        and not (name == "Adagrad" and may_be_mps)  # torch has none for Apple's GPU
        and not (
            isinstance(model, DictConfig)
            and any(one.name == "sparse" and one.raw is True for one in walk(model, "model"))
        )
    )


def _clips_mixed(config: DictConfig) -> bool:
    precision = value_of(config, "trainer.precision")
    return precision in _MIXED and bool(value_of(config, "trainer.gradient_clip_val"))
