"""Keys that nothing reads: they would change nothing, without a word."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import DictConfig, Node, OmegaConf

from assay.config.did_you_mean import key_meant
from assay.config.omegaconf_internals import child_node, is_null, raw_value
from assay.config.tree import walk
from assay.errors import ConfigError
from assay.paths import PACKAGES

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from hydra.core.override_parser.types import Override

    from assay.config.tree import Entry


OUR_MODULE: Final = "assay.module.Module"
OUR_DATA: Final = "assay.data.data_module.DataModule"
OF_MODULE: Final = (
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
TOP: Final = (
    *("augment", "callbacks", "data", "enforce_clean_git", "logger", "loss", "metrics", "model", "module"),
    *("name", "optimizer", "param_groups", "run_dir", "scheduler", "seed", "spec", "tags", "trainer"),
    *("trusted_packages", "predictions", "finetune", "baseline", "recipe"),
)
_TRAINER_OF_MODULE: Final = ("trainer.compile", "trainer.channels_last", "trainer.micro_batch")
_OF_HYDRA: Final = ("run.dir", "sweep.dir", "sweep.subdir", "launcher", "sweeper", "searchpath", "job.config")
"""The last one says how `hydra.job.override_dirname` is made."""
_OF_SWEEPS: Final = (
    "hydra.sweep",
    "hydra.launcher",
    "hydra.sweeper",
    "hydra/launcher",
    "hydra/sweeper",
    "sweep",
)
_FIXED: Final = {
    "metrics": ("train", "eval"),
    "model.recipe": ("steps", "epochs", "lr", "weight_decay", "channels_last"),
    "predictions": ("max_megabytes", "num_samples"),
    "data.split": (
        "val",
        "test",
        "seed",
        "group",
        "time",
        "column",
        "folds",
        "fold",
    ),
    "data.transform": ("train", "eval", "normalize"),
}
"""Nodes that no class takes whole, and all that is read of them."""
_ONE_OPTION: Final = (
    *("augment", "data", "data/transform", "device", "loss", "metrics", "model", "optimizer", "param_groups"),
    *(
        "precision",
        "scheduler",
        "trainer",
        "finetune",
        "hydra/launcher",
        "hydra/sweeper",
        "hydra/sweeper/sampler",
    ),
    "hydra/sweeper/pruner",
)
"""The rest add up: callbacks, loggers, and what changes single values, such as experiments."""
_NAME: Final = re.compile(r"(\.*)([A-Za-z_][\w-]*(?:[.\[][\w-]+\]?)*)", re.ASCII)


def check_read(config: DictConfig) -> None:
    """Refuse keys that would do nothing."""
    entries = list(walk(config))
    if "run_dir" in config:
        raise ConfigError("is set by assay", key="run_dir", hint="the run directory is hydra.run.dir=…")
    _check_headers(config)
    _check_spec(config)
    _check(config, entries, entries, _typed(config))


def check_options(config: DictConfig) -> None:
    """Refuse several options of a group that takes one: Hydra would merge them into a mixture."""
    values: dict[str, Any] = {one.key_or_group: one.value() for one in _typed(config)}
    listed = {group: value for group, value in values.items() if isinstance(value, list)}
    chosen = config.hydra.runtime.choices
    for group in _ONE_OPTION:
        # Of a group with a list of options Hydra notes no choice.
        removed = group in values and values[group] is None
        merged = group not in chosen and OmegaConf.select(config, group.replace("/", ".")) is not None
        merged = merged and not removed
        in_yaml = merged and group not in PACKAGES and group != "data/transform"
        if group in listed or in_yaml:
            options = [str(one) for one in listed.get(group) or []]
            raise ConfigError(
                "this group takes one option" + (f", not {len(options)}" if options else ", not a list"),
                key=group,
                hint=_one_of(group, options),
            )


def _typed(config: DictConfig) -> list[Override]:
    held: Any = OmegaConf.to_container(config.hydra.overrides, resolve=False)  # `${…}` as it was typed
    return OverridesParser.create().parse_overrides([*held["task"], *held["hydra"]])


def _one_of(group: str, options: Sequence[str]) -> str:
    if group == "augment":
        return "augment=flip_crop_mixup, or your own YAML of a torchvision.transforms.v2.Compose"
    if len(options) < 2:
        return f"{group}={''.join(options) or 'OPTION'}"
    return f"{group}={options[0]}, or a run of each: assay train -m {group}={','.join(options)}"


def check_read_by_run(config: DictConfig, typed: Sequence[Override]) -> None:
    """The same of a run that goes on, whose interpolations through resolvers are values by now."""
    entries = list(walk(config))
    keys = [one.key_or_group for one in typed]
    looked_at = [one for one in entries if any(_touches(one.key, key) for key in keys)]
    _check(config, looked_at, entries, typed)


def check_single(overrides: Sequence[str]) -> None:
    """Refuse what only a sweep reads."""
    for one in OverridesParser.create().parse_overrides(list(overrides)):
        key = one.key_or_group
        if any(key == part or key.startswith(f"{part}.") for part in _OF_SWEEPS) and not one.is_delete():
            hint = f"assay train -m {' '.join(overrides)}"
            raise ConfigError("only a sweep reads this, and this is one run", key=key, hint=hint)


def _check(
    config: DictConfig, looked_at: Sequence[Entry], entries: Sequence[Entry], typed: Sequence[Override]
) -> None:
    read = keys_read(entries)
    given = {one.key_or_group: one for one in typed if not one.is_delete()}
    values = {key: one for key, one in given.items() if "/" not in key}
    for entry in _unread(config, looked_at, read):
        # What was typed within it says more than the node.
        key = next((key for key in values if key == entry.key or key.startswith(f"{entry.key}.")), entry.key)
        raise _nothing_reads(key, entries, values)
    for key in values:
        top = key.partition(".")[0]
        if top == "hydra":
            fine = any(_touches(f"hydra.{part}", key) for part in _OF_HYDRA) or is_read(key, read)
        else:
            fine = top in TOP or top not in config or is_read(key, read)  # not there: a group put elsewhere
        if not fine:
            raise _nothing_reads(key, entries, values)
    _check_own_module(config, read, given)


def _unread(config: DictConfig, entries: Sequence[Entry], read: set[str]) -> Iterator[Entry]:
    empty = [
        name for name in ("scheduler", "augment", "param_groups", "finetune") if _without_target(config, name)
    ]
    ours = OmegaConf.select(config, "data._target_") == OUR_DATA
    for entry in entries:
        parent, _, name = entry.key.partition("[")[0].rpartition(".")
        known = _FIXED.get(parent) if ours or not parent.startswith("data") else None
        top = not parent and name not in (*TOP, "hydra") and not (name == "fold" and is_null(entry.node))
        inside = parent in empty or (known is not None and name not in known and not name.startswith("_"))
        if (top or inside) and not is_read(entry.key, read):
            yield entry


def _without_target(config: DictConfig, name: str) -> bool:
    raw: Any = child_node(config, name) if name in config else None
    return isinstance(raw, DictConfig) and not is_null(raw) and "_target_" not in raw


def _check_headers(config: DictConfig) -> None:
    for key, package in PACKAGES.items():
        if key in config:
            raise ConfigError(
                "an option of this group lacks its header: its keys are not where they should be",
                key=key,
                hint=f"its first line: # @package {package}",
            )


def _check_spec(config: DictConfig) -> None:
    ours = OmegaConf.select(config, "data._target_") == OUR_DATA
    if ours and "spec" in config:
        key = next((f"spec.{name}" for name in config.spec or {}), "spec")
        raise ConfigError(
            "comes from the data; what is written here would be replaced", key=key, hint="data=…"
        )


def _check_own_module(config: DictConfig, read: set[str], given: Mapping[str, Override]) -> None:
    """A custom LightningModule takes what its node says, and nothing else."""
    module = child_node(config, "module") if "module" in config else None
    target = None
    if isinstance(module, DictConfig) and not is_null(module):
        target = child_node(module, "_target_")
    named = raw_value(target) if isinstance(target, Node) else None
    if named == OUR_MODULE:
        return
    for key, one in given.items():
        unused = key.partition(".")[0].partition("/")[0] in OF_MODULE and not is_read(key, read)
        if unused or (key in _TRAINER_OF_MODULE and one.value()):
            if not isinstance(named, str) or "." not in named:
                why, hint = "names no LightningModule", f"module._target_={OUR_MODULE}"
                raise ConfigError(why, key="module._target_", hint=hint)
            raise ConfigError(
                "nothing reads this: your own LightningModule gets what `module` says, and nothing else",
                key=key,
                hint=f"module.ARGUMENT=…, or in its YAML: ARGUMENT: ${{{key.replace('/', '.')}}}",
            )


def _nothing_reads(key: str, entries: Sequence[Entry], values: Mapping[str, Override]) -> ConfigError:
    if key.startswith("hydra."):
        return ConfigError("nothing reads this key", key=key, hint=f"of Hydra's: {', '.join(_OF_HYDRA)}")
    parent = key.rpartition(".")[0]
    keys = [
        one.key
        for one in entries
        if not ("[" in one.key or one.key.startswith("hydra.") or _touches(one.key, key))
        and (not parent or not one.is_container or one.key.rpartition(".")[0] == parent)
    ]
    beside = ", ".join(one for one in keys if parent and one.rpartition(".")[0] == parent)
    guess, meant = "", key_meant(key, keys)
    hint = (
        f"keys beside it: {beside}"
        if beside
        else f"`assay train --cfg` shows every key; ${{{key}}} would read it"
    )
    if meant.startswith("assay "):
        hint = meant
    elif meant:
        value = values[key].get_value_element_as_str() if key in values else "…"
        guess, hint = f"; did you mean {meant!r}?", f"{meant}={value}"
    return ConfigError(f"nothing reads this key{guess}", key=key, hint=hint)


def keys_read(entries: Sequence[Entry], without: Collection[str] = ()) -> set[str]:
    """The keys that interpolations name, in places that are themselves read: nodes of a job, less some."""
    named: dict[str, set[str]] = {}
    for entry in entries:
        if entry.is_interpolation:
            top = entry.key.partition(".")[0].partition("[")[0]
            if top == "hydra" and not any(_touches(f"hydra.{part}", entry.key) for part in _OF_HYDRA):
                continue
            named.setdefault(top, set()).update(_names(entry))
    read: set[str] = set()
    waiting = [*(name for name in TOP if name not in without), "hydra"]
    seen = set(waiting)
    while waiting:
        for name in named.get(waiting.pop(), ()):
            read.add(name)
            top = name.partition(".")[0]
            if top not in seen:
                seen.add(top)
                waiting.append(top)
    return read


def _names(entry: Entry) -> Iterator[str]:
    """What may be a key in the text of an interpolation; a word too many does no harm."""
    text = str(entry.raw).replace("hydra:", "hydra.")
    around = entry.key.replace("[", ".").replace("]", "").split(".")[:-1]
    for dots, name in _NAME.findall(text[text.index("${") : text.rindex("}")]):
        path = name.replace("[", ".").replace("]", "")
        if dots:
            path = ".".join([*around[: len(around) - len(dots) + 1], path])
        yield path


def is_read(key: str, read: set[str]) -> bool:
    """Whether a key, or something in it or around it, is among those of `keys_read`."""
    plain = key.replace("[", ".").replace("]", "")
    return any(_touches(name, plain) for name in read)


def _touches(one: str, other: str) -> bool:
    """Whether one of the two keys lies within the other."""
    return one == other or one.startswith(f"{other}.") or other.startswith(f"{one}.")
