"""What data of one's own has to be predicted, known before the job is composed: loss and metrics follow."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from omegaconf import DictConfig, OmegaConf, open_dict
from omegaconf.errors import OmegaConfBaseException

from assay.config.serialize import value_of
from assay.config.unread_keys import OUR_MODULE
from assay.data.source_info import are_vectors, info_of
from assay.errors import ConfigError
from assay.model.hf_folder import network_of
from assay.task.task_of import TASKS, Binary

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

_FOR_IMAGES: Final = "small_cnn"
"""The model of `train.yaml`, which vectors do not fit."""
_CHOSEN: Final = ("model.", "loss.", "metrics.", "augment.")
_WORDS: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


def task_to_choose(config: DictConfig, overrides: Sequence[str], options: Collection[str]) -> list[str]:
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
        find = info_of(str(source.get("_target_"))).find_task
        name = find(source) if find is not None else ""
    if OmegaConf.select(config, "module._target_") != OUR_MODULE:
        return []
    option = _WORDS.sub("_", str(name).rpartition(".")[2]).lower()
    chosen = option in options and not (option == Binary.name and _says_several(overrides))
    task = [f"task={option}", *suited([*overrides, f"task={option}"])] if chosen else []
    by_default = OmegaConf.select(config, "hydra.runtime.choices.model") == _FOR_IMAGES
    if by_default and not _typed("model", [*overrides, *task]) and are_vectors(source):
        task.append("model=mlp")
    return task


def _says_several(overrides: Sequence[str]) -> bool:
    """Whether a loss or metrics were chosen, of which those of several classes take two as well."""
    return any(_typed(group, overrides) for group in ("loss", "metrics", "experiment"))


def suited(overrides: Sequence[str]) -> list[str]:
    """What goes with a typed task that takes the place of the data's own, for which the data has chosen."""
    named = [
        one.partition("=")[2] for one in overrides if one.lstrip("+").startswith(("task=", "data.task="))
    ]
    task = TASKS.get(named[-1]) if named else None
    if task is None or not task.learns_from_inputs or _typed("experiment", overrides):
        return []
    return [one for one in task.suits.split() if not _typed(one.partition("=")[0], overrides)]


def is_of_task(key: str) -> bool:
    """Whether a key lies in a part that the task of the data may choose, which has it only then.

    >>> is_of_task("model.latent_size"), is_of_task("model"), is_of_task("data.batch_size")
    (True, False, False)
    """
    return key.lstrip("+~").startswith(_CHOSEN)


def _typed(group: str, overrides: Sequence[str]) -> bool:
    return any(override.lstrip("+~").startswith(f"{group}=") for override in overrides)


DECIDE: Final = ("model.weights", "model.config")
"""Keys that decide it."""
_TARGET: Final = "assay.model.hf_text.HFText"


def settle_network(config: DictConfig) -> None:
    """Replace `model.config: auto` by what the folder in `model.weights` says: the run no longer needs it."""
    if value_of(config, "model._target_") != _TARGET or value_of(config, "model.config") != "auto":
        return
    try:
        settings = network_of(value_of(config, "model.weights"))
    except ConfigError:
        return
    with open_dict(config):
        config.model.config = settings
