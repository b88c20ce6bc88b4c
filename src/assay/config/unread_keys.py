"""Keys without effect, which would be ignored silently."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from omegaconf import DictConfig, OmegaConf

from assay.config.did_you_mean import guess_key
from assay.config.hydra_internals import parse_overrides
from assay.config.omegaconf_internals import child_node, is_null
from assay.config.tree import places, walk
from assay.errors import ConfigError
from assay.paths import PACKAGES
from assay.quoting import command

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from hydra.core.override_parser.types import Override

    from assay.config.tree import Entry


OUR_MODULE = "assay.module.Module"
OUR_DATA = "assay.data.core.data_module.DataModule"
SHARDED = "assay_cluster.fsdp2.FSDP2"
"""The strategy that gives each device a shard of the model."""
MODULE_GROUPS = (
    "model",
    "loss",
    "optimizer",
    "scheduler",
    "metrics",
    "augment",
    "param_groups",
    "finetune",
)
"""What assay's own module is made of."""
TOP = (
    *("augment", "callbacks", "data", "logger", "loss", "metrics", "model", "module"),
    *(
        "name",
        "optimizer",
        "param_groups",
        "run_dir",
        "scheduler",
        "seed",
        "spec",
        "tags",
        "trainer",
    ),
    *("trusted_packages", "predictions", "finetune", "baseline"),
)
_TRAINER_OF_MODULE = ("trainer.compile", "trainer.channels_last", "trainer.micro_batch")
_OF_HYDRA = ("mode", "run.dir", "sweep.dir", "launcher", "sweeper", "searchpath", "job.config")
"""The last one says how `hydra.job.override_dirname` is made."""
_OF_SWEEPS = re.compile(r"hydra[./](sweep|launcher|sweeper)(\..*)?|sweep")
FIXED = {
    "metrics": ("train", "eval"),
    "model.recipe": ("steps", "epochs", "lr", "weight_decay", "channels_last"),
    "predictions": ("max_megabytes", "num_samples"),
    "data.split": ("val", "test", "seed", "group", "time", "column", "dedup", "folds", "fold"),
    "data.transform": ("train", "eval", "normalize"),
}
"""Nodes that no class gets as a whole, and the keys that are read."""
_ONE_OPTION = (
    *(*MODULE_GROUPS, "data", "data/transform", "device", "precision", "trainer"),
    *("hydra/launcher", "hydra/sweeper", "hydra/sweeper/sampler", "hydra/sweeper/pruner"),
)
"""The options of other groups add up: callbacks, loggers, and what changes single values, as experiments."""
_NAME = re.compile(r"(\.*)([A-Za-z_][\w-]*(?:[.\[][\w-]+\]?)*)", re.ASCII)


def check_unread_keys(config: DictConfig, typed: Sequence[Override]) -> None:
    """Refuse keys that would do nothing, and several options of a group that takes one."""
    _check_options(config, {override.key_or_group: override.value() for override in typed})
    entries = [
        entry for entry in places(config) if not (entry.is_followed or entry.key == "run_dir")
    ]
    if "spec" in config and OmegaConf.select(config, "data._target_") == OUR_DATA:
        key = next((f"spec.{name}" for name in config.spec or {}), "spec")
        message = "comes from the data, which would replace the value given here"
        raise ConfigError(message, key=key, hint="data=…")
    _check(config, entries, entries, typed)


def _check_options(config: DictConfig, values: Mapping[str, Any]) -> None:
    """Refuse several options of a group that takes one: Hydra would merge them into a mixture."""
    choices = config.hydra.runtime.choices
    for group in _ONE_OPTION:
        # Of a group with a list of options, also in YAML, Hydra notes no choice.
        in_yaml = (
            group in MODULE_GROUPS
            and group not in choices
            and group in config
            and group not in values
        )
        if isinstance(values.get(group), list) or in_yaml:
            options = ",".join(map(str, values.get(group, ())))
            hint = f"{group}=OPTION; for a run of each: assay train -m {group}={options or 'A,B'}"
            raise ConfigError("this group takes one option, not a list", key=group, hint=hint)


def check_unread_on_resume(config: DictConfig, typed: Sequence[Override]) -> None:
    """The same of a run that goes on, whose interpolations through resolvers are values by now."""
    entries = list(walk(config))
    keys = [item.key_or_group for item in typed]
    looked_at = [item for item in entries if any(_overlap(item.key, key) for key in keys)]
    _check(config, looked_at, entries, typed)


def check_single_run(overrides: Sequence[str]) -> None:
    """Refuse overrides that only apply to a sweep."""
    for override in parse_overrides(overrides):
        key = override.key_or_group
        if _OF_SWEEPS.fullmatch(key) and not override.is_delete():
            hint = command("train", "-m", *overrides)
            raise ConfigError(
                "this applies only to a sweep, but this is a single run", key=key, hint=hint
            )


def _check(
    config: DictConfig,
    looked_at: Sequence[Entry],
    entries: Sequence[Entry],
    typed: Sequence[Override],
) -> None:
    read = interpolated_keys(entries)
    module = OmegaConf.select(config, "module._target_")
    is_custom = isinstance(module, str) and "." in module and module != OUR_MODULE
    values = {override.key_or_group: override for override in typed if not override.is_delete()}
    for entry in _unread(config, looked_at, read):
        # What was typed within it says more than the node.
        key = next(
            (key for key in values if key == entry.key or key.startswith(f"{entry.key}.")),
            entry.key,
        )
        node = entry.key.partition(".")[0]
        if key not in values and node in OPTIONAL_GROUPS and _without_target(config, node):
            hint = f"{node}=OPTION; options: assay configs {node}"
            message = f"names no class, as it has no _target_: {key} has no effect"
            raise ConfigError(message, key=node, hint=hint)
        raise _unused_key_error(key, entries, values)
    for key, override in values.items():
        top = key.partition(".")[0].partition("/")[0]
        if top == "hydra":
            fine = "/" in key or any(_overlap(f"hydra.{part}", key) for part in _OF_HYDRA)
        else:  # not there: a group put elsewhere
            fine = top in TOP or top not in config
        of_module = top in MODULE_GROUPS or (key in _TRAINER_OF_MODULE and override.value())
        if is_custom and of_module and not is_read(key, read):
            raise ConfigError(
                "this has no effect: a custom LightningModule gets only what `module` sets",
                key=key,
                hint=f"module.ARGUMENT=…, or in its YAML: ARGUMENT: ${{{key.replace('/', '.')}}}",
            )
        if not fine and not is_read(key, read):
            raise _unused_key_error(key, entries, values)


OPTIONAL_GROUPS = ("scheduler", "augment", "param_groups", "finetune")


def _unread(config: DictConfig, entries: Sequence[Entry], read: set[str]) -> Iterator[Entry]:
    empty = [name for name in OPTIONAL_GROUPS if _without_target(config, name)]
    ours = OmegaConf.select(config, "data._target_") == OUR_DATA
    for entry in entries:
        parent, _, name = entry.key.partition("[")[0].rpartition(".")
        names = None
        if ours or not parent.startswith("data"):
            names = FIXED.get(parent)
        top = (
            not parent
            and name not in (*TOP, "hydra")
            and not (name == "fold" and is_null(entry.node))
        )
        inside = parent in empty or (
            names is not None and name not in names and not name.startswith("_")
        )
        if (top or inside) and not is_read(entry.key, read):
            yield entry


def _without_target(config: DictConfig, name: str) -> bool:
    raw: Any = None
    if name in config:
        raw = child_node(config, name)
    return isinstance(raw, DictConfig) and not is_null(raw) and "_target_" not in raw


def missing_header(group: str) -> ConfigError:
    """The error for an option whose keys would be put below the name of its group."""
    why = "an option of this group lacks its header"
    hint = f"its first line: # @package {PACKAGES[group]}"
    return ConfigError(f"{why}: its keys end up in the wrong place", key=group, hint=hint)


def _unused_key_error(
    key: str, entries: Sequence[Entry], values: Mapping[str, Override]
) -> ConfigError:
    if key.startswith("hydra."):
        hint = f"keys of Hydra that have an effect: {', '.join(_OF_HYDRA)}"
        return ConfigError("this key has no effect", key=key, hint=hint)
    if key in PACKAGES:
        return missing_header(key)
    parent = key.rpartition(".")[0]
    keys = [
        item.key
        for item in entries
        if not ("[" in item.key or item.key.startswith("hydra.") or _overlap(item.key, key))
        and (not parent or not item.is_container or item.key.rpartition(".")[0] == parent)
    ]
    beside = ", ".join(item for item in keys if parent and item.rpartition(".")[0] == parent)
    guess = ""
    meant = guess_key(key, keys)
    hint = "`assay train --cfg` shows every key"
    if beside:
        hint = f"keys beside it: {beside}"
    if meant:
        value = "…"
        if key in values:
            value = values[key].get_value_element_as_str()
        guess = f"; did you mean {meant!r}?"
        hint = f"{meant}={value}"
    return ConfigError(f"this key has no effect{guess}", key=key, hint=hint)


def interpolated_keys(entries: Sequence[Entry], without: Collection[str] = ()) -> set[str]:
    """The keys that interpolations name, less those in some nodes, and in what Hydra alone would read."""
    read: set[str] = set()
    for entry in entries:
        top = entry.key.partition(".")[0].partition("[")[0]
        of_hydra = top == "hydra" and not any(
            _overlap(f"hydra.{part}", entry.key) for part in _OF_HYDRA
        )
        if entry.is_interpolation and top not in without and not of_hydra:
            read |= {*_names(entry)}
    return read


def _names(entry: Entry) -> Iterator[str]:
    """Possible keys in the text of an interpolation; superfluous words do no harm."""
    text = str(entry.raw).replace("hydra:", "hydra.")
    container = entry.key.replace("[", ".").replace("]", "").split(".")[:-1]
    for dots, name in _NAME.findall(text[text.index("${") : text.rindex("}")]):
        path = name.replace("[", ".").replace("]", "")
        if dots:
            path = ".".join([*container[: len(container) - len(dots) + 1], path])
        yield path


def is_read(key: str, read: set[str]) -> bool:
    """Whether a key, or something in it or around it, is among those of `interpolated_keys`."""
    plain = key.replace("[", ".").replace("]", "")
    return any(_overlap(name, plain) for name in read)


def _overlap(key: str, other: str) -> bool:
    """Whether one of the two keys lies within the other."""
    return key == other or key.startswith(f"{other}.") or other.startswith(f"{key}.")
