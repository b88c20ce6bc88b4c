"""What `auto` stands for in a job: values and a task that follow from its data, and `optimizer.fused`."""

from __future__ import annotations

import re
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from omegaconf import DictConfig, OmegaConf, open_dict
from omegaconf.errors import OmegaConfBaseException

from assay.config.omegaconf_internals import child_node, is_null, raw_value
from assay.config.serialize import value_of
from assay.config.tree import walk
from assay.config.unread_keys import OUR_MODULE, SHARDED
from assay.data.core.source_info import are_vectors, info_of
from assay.errors import ConfigError
from assay.model.hf_folder import read_network_settings
from assay.targets.resolve import resolve
from assay.targets.trust import ADDRESS, is_within, refuse_untyped
from assay.task.classification import Binary
from assay.task.task_of import TASKS

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from assay.targets.trust import Trust

RECIPE = {
    "data.batch_size": ("batch_size", "auto"),
    "data.source.image_size": ("image_size", "auto"),
    "data.source.max_value": ("max_value", "auto"),
    "model.widths": ("widths", "[32,64,128]"),
    "model.stride": ("stride", "1"),
    "augment.flip": ("flip", "0.5"),
    "trainer.max_epochs": ("max_epochs", "30"),
    "trainer.channels_last": ("channels_last", "false"),
    "optimizer.lr": ("lr", "0.001"),
    "optimizer.weight_decay": ("weight_decay", "0.01"),
    "callbacks.early_stopping.patience": ("patience", "10"),
}
"""By key, where in `spec` the value is found, and what it is with data that tells nothing."""

OF_SPEC = frozenset(f"spec.{name}" for name, _ in RECIPE.values())


def settle_recipe(config: DictConfig) -> None:
    """Let each key of the recipe that says `auto` refer to what the data will tell."""
    settle_model(config)
    if (total := _raw(config, "data.global_batch_size")) is not None:
        if (size := restore_auto("data.batch_size", _raw(config, "data.batch_size"))) != "auto":
            raise ConfigError(
                f"data.batch_size={size} is what one process takes; this is what all of them take",
                key="data.global_batch_size",
                hint=f"data.global_batch_size={total} data.batch_size=auto",
            )
        if _raw(config, "data.drop_last") == "auto":
            config.data.drop_last = True
    for key, reference in RECIPE.items():
        if _raw(config, key) == "auto":
            OmegaConf.update(config, key, _reference(*reference))


def settle_model(config: DictConfig) -> None:
    """Move the recipe of a model's YAML to the node `recipe`: it is not an argument of the model's class."""
    model = None
    if "model" in config:
        model = child_node(config, "model")
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


def restore_auto(key: str, raw: Any) -> Any:
    """The value as typed: `auto` if it waits for the data."""
    if key in RECIPE and raw == _reference(*RECIPE[key]):
        return "auto"
    return raw


def _raw(config: DictConfig, key: str) -> Any:
    """What is written under a key, not resolved; None where there is nothing, or a node."""
    node: Any = config
    for part in key.split("."):
        inside = isinstance(node, DictConfig) and not is_null(node) and part in node
        if inside:
            node = child_node(node, part)
        else:
            node = None
    if node is None or OmegaConf.is_config(node):
        return None
    return raw_value(node)


def _reference(name: str, fallback: str) -> str:
    return f"${{oc.select:spec.{name},{fallback}}}"


AUTO = "auto"
DECIDE = (
    *("model.weights", "model.config"),
    *("optimizer.fused", "optimizer.capturable", "optimizer.differentiable", "optimizer.foreach"),
    *("trainer.accelerator", "trainer.gradient_clip_val", "trainer.precision"),
)
"""Keys that decide what a network or `fused` comes to, beside the classes."""
_CLASSES = ("Adagrad", "Adam", "AdamW", "SGD")
"""Of `torch.optim`, those that take `fused`."""
_SCALED = ("16-mixed", "16", 16)
_MIXED = ("bf16-mixed", "bf16", *_SCALED)


def settle_fused(config: DictConfig) -> None:
    """Replace `optimizer.fused: auto` by true or null: what a run records is what it does everywhere."""
    name = _class_of(config)
    if name and value_of(config, "optimizer.fused") == AUTO:
        if _suits(config, name):
            config.optimizer.fused = True
        else:
            config.optimizer.fused = None


def check_fused(config: DictConfig) -> None:
    """Refuse a fused optimizer where Lightning would do so in the first step."""
    if value_of(config, "optimizer.fused") is not True or not _class_of(config):
        return
    message = ""
    if not _fits_shards(config, _class_of(config)):
        message = "torch has no fused kernel for shards of this optimizer"
    elif _clips_mixed(config):
        message = "Lightning cannot clip the gradients of a fused optimizer in mixed precision"
    if message:
        raise ConfigError(message, key="optimizer.fused", hint="optimizer.fused=null")


def _class_of(config: DictConfig) -> str:
    """The class of torch's that can be fused; empty for others."""
    home, _, name = str(value_of(config, "optimizer._target_")).rpartition(".")
    if name in _CLASSES and home in ("torch.optim", f"torch.optim.{name.lower()}"):
        return name
    return ""


def _suits(config: DictConfig, name: str) -> bool:
    """Whether torch and Lightning do with a fused kernel what they do without one."""
    model = config.get("model")
    accelerator = value_of(config, "trainer.accelerator")
    return (
        not any(value_of(config, f"optimizer.{key}") for key in ("capturable", "differentiable"))
        and value_of(config, "optimizer.foreach") is None
        and value_of(config, "trainer.precision") not in _SCALED
        and accelerator in (None, "auto", "cpu", "cuda", "gpu", "mps")
        and not _clips_mixed(config)
        and _fits_shards(config, name)
        and "deepspeed"
        not in str(value_of(config, "trainer.strategy")).lower()  # steps its own optimizer
        and not (name == "Adagrad" and accelerator != "cpu")  # torch has none for GPUs
        and not (
            isinstance(model, DictConfig)
            and any(
                entry.name == "sparse" and entry.raw is True for entry in walk(model, "model")
            )
        )
    )


def _fits_shards(config: DictConfig, name: str) -> bool:
    """Whether torch has the fused kernel for weights in shards, where they are."""
    return value_of(config, "trainer.strategy._target_") != SHARDED or name in ("Adam", "AdamW")


def _clips_mixed(config: DictConfig) -> bool:
    precision = value_of(config, "trainer.precision")
    return precision in _MIXED and bool(value_of(config, "trainer.gradient_clip_val"))


_FOR_IMAGES = "small_cnn"
"""The model of `train.yaml`, which vectors do not fit."""
_CHOSEN = ("model.", "loss.", "metrics.", "augment.")
_OF_CLASSES = ("loss", "metrics")
_WORDS = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


def task_to_choose(
    config: DictConfig, overrides: Sequence[str], options: Collection[str], person: Trust
) -> list[str]:
    """The overrides that choose the loss and metrics of the data's task, and a model that suits it."""
    if _typed("task", overrides) or _typed("data.task", overrides):
        return []
    try:
        source: Any = config.data.source
        if not isinstance(source, DictConfig):
            return []  # which is refused with its key, when nodes are looked at
        source = OmegaConf.to_container(source, resolve=True)
        name = source.get("task")
    except (OmegaConfBaseException, AttributeError):
        return []
    if name in ("auto", None):
        target = str(source.get("_target_"))
        if is_within(target, person.packages):
            with suppress(ConfigError):  # which the check reports
                resolve("data.source", target, person.packages)
        find = info_of(target).find_task
        name = ""
        if find is not None:
            # before anything is looked at
            for key, value in source.items():
                if isinstance(value, str) and "://" in value:
                    refuse_untyped(f"data.source.{key}", value, ADDRESS, person)
            name = find(source)
    if OmegaConf.select(config, "module._target_") != OUR_MODULE:
        return []
    option = _WORDS.sub("_", str(name).rpartition(".")[2]).lower()
    # A loss and metrics of several classes that were chosen take two as well.
    keeps_typed = option == Binary.name and any(_typed(one, overrides) for one in _OF_CLASSES)
    chosen = option in options and not keeps_typed
    task = []
    if chosen:
        task = [f"task={option}", *task_defaults([*overrides, f"task={option}"])]
    by_default = OmegaConf.select(config, "hydra.runtime.choices.model") == _FOR_IMAGES
    if by_default and not _typed("model", [*overrides, *task]) and are_vectors(source):
        task.append("model=mlp")
    return task


def keeps_parts(task: Sequence[str], before: Mapping[str, Any], after: Mapping[str, Any]) -> bool:
    """Whether an experiment chooses a loss or metrics of several classes, which take two as well."""
    return f"task={Binary.name}" in task and any(
        before.get(part) == after.get(part) for part in _OF_CLASSES
    )


def task_defaults(overrides: Sequence[str]) -> list[str]:
    """Overrides that suit a typed task, which replaces the task of the data."""
    typed = (override.lstrip("+").partition("=") for override in overrides)
    named = [option for key, sign, option in typed if sign and key in ("task", "data.task")]
    task = None
    if named:
        task = TASKS.get(named[-1])
    if task is None or not task.learns_from_inputs or _typed("experiment", overrides):
        return []
    return [
        override
        for override in task.suits.split()
        if not _typed(override.partition("=")[0], overrides)
    ]


def is_of_task(key: str) -> bool:
    """Whether a key lies in a part that the task of the data may choose, which has it only then.

    >>> is_of_task("model.latent_size"), is_of_task("model"), is_of_task("data.batch_size")
    (True, False, False)
    """
    return key.lstrip("+~").startswith(_CHOSEN)


def _typed(group: str, overrides: Sequence[str]) -> bool:
    return any(override.lstrip("+~").startswith(f"{group}=") for override in overrides)


def settle_network(config: DictConfig) -> None:
    """Replace `model.config: auto` by what the folder in `model.weights` says: the run no longer needs it."""
    if (
        value_of(config, "model._target_") != "assay.model.hf_text.HFText"
        or value_of(config, "model.config") != "auto"
    ):
        return
    try:
        settings = read_network_settings(value_of(config, "model.weights"))
    except ConfigError:
        return
    with open_dict(config):
        config.model.config = settings
