"""Broken and unusual values of every argument of every shipped option, from its YAML and its signature."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml
from omegaconf import DictConfig, OmegaConf

from assay.check.signature import injected_arguments
from assay.config.tree import walk
from assay.errors import AssayError
from assay.paths import CONF_DIR
from assay.targets.call_signature import call_of
from assay.targets.resolve import resolve
from assay_explain.listing import list_options

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from assay.compose.compose import JobComposer

LONG = 300
"""Characters of a text that is too long for a name of a file."""
_SMALL = ("device=cpu", "trainer.max_epochs=1", "trainer.log_every_n_steps=1")
OPTIONS = yaml.safe_load(Path(__file__).with_name("options.yaml").read_text(encoding="utf-8"))
_BESIDE = OPTIONS["beside"]
_TABLE = "data=iris model.hidden=[8]"
_DOWNLOADED = ("cifar10", "cifar100", "fashion_mnist", "mnist")


def named(*lists: str) -> set[tuple[str, str]]:
    """Group and name of the options in lists of `options.yaml`; files that no test has are elsewhere."""
    of_files = {path.stem for path in CONF_DIR.glob("data/*.yaml") if "???" in path.read_text("utf-8")}
    unnamed = {("data", name) for name in of_files if f"data/{name}" not in _BESIDE}
    listed = {(group, name) for one in lists for group, names in OPTIONS[one].items() for name in names}
    return listed | (unnamed if "elsewhere" in lists else set())


_NOT_HERE = named("elsewhere", "alike")
_ENDLESS = "data.source.dataset.size=1000000000000"  # so many samples are looked at, one by one
_OF_THE_SWEEP = ("experiment", "sweep", "hydra")


@dataclass(frozen=True)
class Case:
    """One change of one place of a whole job; the option is empty for what belongs to no group."""

    option: str
    base: tuple[str, ...]
    key: str
    change: str
    trains: bool = True  # not where its data would have to be downloaded

    @property
    def typed(self) -> list[str]:
        return [*self.base, self.change]

    @property
    def name(self) -> str:
        return f"{self.option} {self.change}"

    def __str__(self) -> str:
        return f"{self.option}: {self.change if len(self.change) < 80 else self.change[:60] + '…'}"


def bases() -> dict[str, tuple[str, ...]]:
    """For each option, and for none, a small job that it is part of."""
    found: dict[str, tuple[str, ...]] = {"": (*_SMALL, *_TABLE.split(), "callbacks=[]")}
    for option in list_options():
        group, name = option.group, option.name
        if (group, name) in _NOT_HERE or group.partition("/")[0] in _OF_THE_SWEEP:
            continue
        found[f"{group}/{name}"] = (*_SMALL, *_base(group, name))
    return found


def _base(group: str, name: str) -> tuple[str, ...]:
    around = _BESIDE.get(f"{group}/{name}", _BESIDE.get(group, _TABLE)).split()
    if group == "callbacks":
        return (*around, "callbacks=[default]" if name == "default" else f"callbacks=[default,{name}]")
    if group == "logger":
        offline = ("logger.wandb.offline=true",) if name == "wandb" else ()
        return (*around, "callbacks=[]", f"logger=[{name}]", *offline)
    return (*around, "callbacks=[]", f"{group}={name}")


def cases(composer: JobComposer, options: Iterable[str] = ()) -> Iterator[Case]:
    """Every case, each place of a class only once."""
    known: set[tuple[str, str, str]] = set()
    chosen = set(options)
    for option, base in bases().items():
        if chosen and option not in chosen:
            continue
        trains = not (option.startswith("data/") and option.removeprefix("data/") in _DOWNLOADED)
        config = OmegaConf.create(composer.job(base, 0).config)
        for owner, key, kind, change in _changes(config):
            name = (owner, key.rpartition(".")[2] if owner else key, kind)
            if name not in known and change != _ENDLESS:
                known.add(name)
                yield Case(option, base, key, change, trains)


def _changes(config: DictConfig) -> Iterator[tuple[str, str, str, str]]:
    """Class, key, kind and override of each change."""
    for entry in walk(config):
        key = _typed(entry.key)
        owner = str(entry.parent.get("_target_") or "") if isinstance(entry.parent, DictConfig) else ""
        if str(entry.name).startswith("_"):
            owner = key.partition(".")[0]  # Hydra's words mean the same everywhere
        inside_a_list_of_values = not isinstance(entry.parent, DictConfig) and not isinstance(
            entry.node, DictConfig
        )
        if inside_a_list_of_values or entry.name in ("run_dir", "trusted_packages"):
            continue
        if isinstance(entry.node, DictConfig) and entry.is_container:
            of = str(entry.node.get("_target_") or "")
            yield from ((of or key, key, kind, change) for kind, change in _of_node(key, of))
            if of:
                yield from (
                    (owner, name, f"added, {kind}", change)
                    for owner, name, kind, change in _added(config, entry.key, entry.node)
                )
            continue
        yield from ((owner, key, kind, change) for kind, change in _of_value(key, entry))


def _of_node(key: str, target: str) -> Iterator[tuple[str, str]]:
    yield from (("null", f"{key}=null"), ("text for a node", f"{key}=abc"), ("number for a node", f"{key}=3"))
    yield from (("list for a node", f"{key}=[1]"), ("left out", f"~{key}"))
    if target:
        yield ("unknown argument", f"+{key}.no_such_argument=1")


def _of_value(key: str, entry: Any) -> Iterator[tuple[str, str]]:
    present = (
        None
        if entry.is_interpolation
        else OmegaConf.to_container(entry.node)
        if entry.is_container
        else entry.node._value()
    )
    yield ("left out", f"~{key}")
    for kind, value in values(present):
        if value != present or type(value) is not type(present):
            yield (kind, f"{key}={as_typed(value)}")


def _added(config: DictConfig, at: str, node: DictConfig) -> Iterator[tuple[str, str, str, str]]:
    """Arguments that the signature takes and the YAML does not give."""
    try:
        call = call_of(resolve(at, str(node._target_), ()))
    except AssayError:
        return
    given = injected_arguments(config, at)
    if call is None:
        return  # a built-in does not tell
    by_position = call.by_position[: given.by_position] if given else []
    for name in call.parameters:
        if name not in node and name not in by_position and not (given and name in given.names):
            key = f"{_typed(at)}.{name}"
            for kind, value in _few(call.parameters[name].default):
                yield str(node._target_), key, kind, f"+{key}={as_typed(value)}"


def values(present: Any) -> Iterator[tuple[str, Any]]:
    """What to put in the place of a value, each with its kind in words."""
    yield from (("text", "abc"), ("list", [1, 2]))
    if isinstance(present, bool):
        yield from (("the other", not present), ("truth as text", str(present).lower()), ("above one", 7))
        return
    yield from (("null", None), ("zero", 0), ("negative", -1))
    if isinstance(present, list | tuple):
        yield from _lists(list(present))
    elif isinstance(present, str):
        yield from (("empty text", ""), ("long text", "x" * LONG))
    else:
        yield from (("truth", True), ("huge", 10**12), ("not a number", math.nan))
    if isinstance(present, int | float):
        yield from (("mapping", {"a": 1}), ("infinite", math.inf), ("number as text", str(present)))
        yield ("fraction", 0.5) if isinstance(present, int) else ("above one", 7.0)


def _few(default: Any) -> Iterator[tuple[str, Any]]:
    """For an argument that the YAML does not even name."""
    yield from (("text", "abc"), ("list", [1, 2]))
    yield from () if isinstance(default, bool) else (("negative", -1), ("huge", 10**12))


def _lists(items: list[Any]) -> Iterator[tuple[str, Any]]:
    yield from (("empty", []), ("too long", items + (items[-1:] or [1]) * 2), ("nested", [items]))
    if len(items) > 1:
        yield ("too short", items[:-1])
    for kind, value in (
        ("text", "abc"),
        ("zero", 0),
        ("negative", -1),
        ("not a number", math.nan),
        ("null", None),
    ):
        yield (f"{kind} in it", [value, *items[1:]])


def as_typed(value: Any) -> str:
    """A value in the grammar of overrides."""
    if isinstance(value, dict):
        return "{" + ",".join(f"{name}:{as_typed(one)}" for name, one in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(as_typed, value)) + "]"
    if isinstance(value, str):
        return f"'{value}'"
    return json.dumps(value).replace("NaN", "nan").replace("Infinity", "inf")


def _typed(key: str) -> str:
    return key.replace("[", ".").replace("]", "")
