"""Where each value of a composed config was written; what `assay explain` prints, and errors name."""

from __future__ import annotations

import copy
import json
import re
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any, Literal, final

import yaml
from hydra.core.default_element import GroupDefault
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException
from rich.text import Text

from assay.compose.compose import PRIMARY, compose_with, loader
from assay.config.did_you_mean import did_you_mean
from assay.config.hydra_internals import config_file, load_defaults
from assay.config.tree import join_key, split_key, walk, walk_plain
from assay.config.yaml_file import display_path
from assay.errors import ConfigError
from assay.targets.trust import trust_for, user_folders
from assay.terminal import print_rows, shorten

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from hydra.core.override_parser.types import Override

    from assay.config.hydra_internals import Hydra
    from assay.config.tree import Entry
    from assay.terminal import Console

COMMAND_LINE = "command line"
_THE_DATA = "the task of the data"
_AWAITED = "known once the data is read"

_Parts = tuple[str, ...]
_Kind = Literal["mapping", "list", "value", "gone"]
_Entries = dict[_Parts, "Entry"]


@final
@dataclass(frozen=True)
class Setting:
    """A key, the value it is given, and where.

    Attributes:
        key: Full key.
        text: The value as it is written; empty where an override takes the key away.
        where: `conf/optimizer/adamw.yaml:3`, `command line`, or who else it was.
        path: The file, when it is one.
        line: In that file.
        override: As typed, when it was typed.
    """

    key: str
    text: str
    where: str
    path: Path | None = None
    line: int = 0
    override: str = ""


@final
@dataclass(frozen=True)
class Choice:
    """A config group and its option.

    Attributes:
        group: What is typed to choose, such as `optimizer` or `data/transform`.
        package: Node of the config that the option is put into; empty for the whole config.
        option: Its name, several with commas; empty for none.
        settings: Every place that names an option, the oldest first; the last one decided.
    """

    group: str
    package: str
    option: str
    settings: tuple[Setting, ...]

    def holds_file(self, path: Path) -> bool:
        """Whether a file is one of the group's chosen options."""
        files = [f"/{self.group}/{option}.yaml" for option in self.option.split(",")]
        return path.parent.as_posix().endswith(f"/{self.group}") or path.as_posix().endswith(
            tuple(files)
        )


@final
@dataclass
class Origins:
    """Every setting of a composition, in the order in which they are merged."""

    choices: dict[str, Choice] = field(default_factory=dict)
    events: list[tuple[_Parts, _Kind, int, Setting]] = field(default_factory=list)

    def chain(self, parts: _Parts) -> list[Setting]:
        """Every setting of a key, the oldest first; the last one made it what it is."""
        layers = {  # of each layer the last one, which is the nearest
            layer: setting
            for position, kind, layer, setting in self.events
            if position == parts or (kind != "mapping" and parts[: len(position)] == position)
        }
        return list(layers.values())

    def nearest(self, key: str) -> Setting | None:
        """The setting to look at when a key is wrong: its last one, or that of a node around it."""
        parts = split_key(key)
        choice = self.choice_of(key)
        while parts:
            chain = self.chain((*parts, "_target_")) or self.chain(parts)
            if choice and not (chain and chain[-1].override):
                return choice.settings[-1]
            if chain:
                return chain[-1]
            parts = parts[:-1]
        return None

    def choice_of(self, key: str) -> Choice | None:
        """The group that goes by this name, or whose option is put there."""
        packages = [
            one
            for one in self.choices.values()
            if one.package and split_key(one.package) == split_key(key)
        ]
        return self.choices.get(key) or next(iter(packages), None)

    def put(self, layer: int, parts: _Parts, kind: _Kind, setting: Setting) -> None:
        """Merge one setting; `???` says only that something must be there."""
        if setting.text != "???" or all(parts != other for other, *_ in self.events):
            self.events.append((parts, kind, layer, setting))

    def put_file(self, layer: int, path: Path, package: _Parts = ()) -> None:
        """Merge the settings of a YAML file."""
        for at, kind, text, line in yaml_entries(path, package):
            self.put(
                layer,
                at,
                kind,
                Setting(join_key(at), text, f"{display_path(path)}:{line}", path, line),
            )


def trace_origins(hydra: Hydra, overrides: Sequence[str], implied: Sequence[str] = ()) -> Origins:
    """Where the values of a job come from, with a loader that is already open."""
    merged, parsed, repository = load_defaults(
        hydra.config_loader, PRIMARY, [*overrides, *implied]
    )
    origins = Origins()
    named: dict[str, list[tuple[str, Setting]]] = {}
    changed: dict[str, list[tuple[str, Setting]]] = {}
    packages: dict[str, str] = {}
    for layer, default in enumerate(merged.defaults):
        name = str(default.config_path)
        package = default.package or ""
        packages[default.override_key or ""] = package
        loaded = repository.load_config(name)
        path = config_file(repository, name)
        if loaded is None or path is None:
            config: Any = loaded.config if loaded else OmegaConf.create()
            owner = "Hydra's default" if name.startswith("hydra/") else "ConfigStore"
            for entry in walk(config, package):  # classes, not files
                kind: _Kind = "mapping" if entry.is_container else "value"
                text = "" if entry.is_container else to_yaml_line(entry.raw)
                origins.put(layer, split_key(entry.key), kind, Setting(entry.key, text, owner))
            continue
        lines = read_defaults(path)
        for item, (text, line) in zip(
            copy.deepcopy(loaded.defaults_list or []), lines, strict=False
        ):
            if isinstance(item, GroupDefault):
                item.update_parent(name.rpartition("/")[0], package)
                key = item.get_override_key()
                packages.setdefault(key, item.get_final_package())
                setting = Setting(key, text, f"{display_path(path)}:{line}", path, line)
                settings = (changed if item.override else named).setdefault(key, [])
                settings.append((_option(item.value), setting))
        origins.put_file(layer, path, split_key(package))
        for folder in user_folders(hydra) if default.primary else ():
            if (folder / "project.yaml").is_file():
                origins.put_file(layer, folder / "project.yaml")
    for override in parsed:
        key = override.get_key_element().lstrip("+~")
        typed = str(override.input_line)
        if repository.group_exists(override.key_or_group) and not isinstance(
            override.value(), dict
        ):
            where = _THE_DATA if typed in implied else COMMAND_LINE
            option = "" if override.is_delete() else _option(override.value())
            changed.setdefault(key, []).append(
                (option, Setting(key, option, where, override=typed))
            )
            packages.setdefault(
                key, str(override.package or override.key_or_group.replace("/", "."))
            )
    origins.put(-1, ("run_dir",), "value", Setting("run_dir", "${hydra.run.dir}", "assay itself"))
    for layer, override in enumerate(merged.config_overrides, start=len(merged.defaults)):
        _put_override(origins, layer, override)
    for key in dict.fromkeys((*named, *changed)):
        if not key.startswith("hydra"):
            chain = [*named.get(key, ()), *changed.get(key, ())]
            by = tuple(setting for _, setting in chain)
            origins.choices[key] = Choice(key, packages[key], chain[-1][0], by)
    return origins


def _option(value: object) -> str:
    if isinstance(value, list):
        return ",".join(map(str, value))
    if value is None:
        return ""
    return str(value)


def _put_override(origins: Origins, layer: int, override: Override) -> None:
    typed = str(override.input_line)
    for parts, value in walk_plain(override.value(), split_key(override.key_or_group)):
        kind: _Kind = "value"
        if isinstance(value, dict):
            kind = "mapping"
        elif isinstance(value, list):
            kind = "list"
        text = ""
        if not override.is_delete():
            text = to_yaml_line(value)
        origins.put(
            layer, parts, kind, Setting(join_key(parts), text, COMMAND_LINE, override=typed)
        )


def to_yaml_line(value: Any) -> str:
    """A value as one line of YAML."""
    value = value.name if isinstance(value, Enum) else value
    text: str = yaml.safe_dump(
        value, default_flow_style=True, width=float("inf"), allow_unicode=True, sort_keys=False
    )
    return text.removesuffix("\n").removesuffix("\n...")


def locate(
    error: ConfigError, overrides: Sequence[str], config_dir: Path | None = None
) -> ConfigError:
    """Add the file and line of its key to an error that has none; never raises."""
    key = error.key.partition(",")[0]
    if key and not error.file:
        with suppress(Exception):  # an error without a place must still be raised
            error.add_file(_place(key, overrides, config_dir))
    return error


def _place(key: str, overrides: Sequence[str], config_dir: Path | None) -> str:
    typed = {re.split(r"[=@]", override.lstrip("+~"), maxsplit=1)[0] for override in overrides}
    if key in typed:
        return COMMAND_LINE
    with loader(config_dir) as hydra:
        trust_for(hydra, overrides)  # before Hydra looks into its search path
        implied: list[str] = []
        with suppress(ConfigError):
            implied = implied_overrides(compose_with(hydra, overrides), overrides)
        setting = trace_origins(hydra, overrides, implied).nearest(key)
    if setting:
        return setting.where
    return ""


@final
@dataclass(frozen=True)
class Key:
    """A key below the one that is explained.

    Attributes:
        key: Full key.
        value: As it is written in YAML.
        where: `conf/optimizer/adamw.yaml:3`, `command line`, or what else set it; empty where unknown.
        overridden: What counts in its place, and where that was set; empty where this one counts.
    """

    key: str
    value: str
    where: str
    overridden: str = ""


@final
@dataclass(frozen=True)
class Explanation:
    """A value, a node or a group, and where it comes from.

    Attributes:
        key: Full key, or the group.
        value: As it is written in YAML; the option of a group; empty for a node.
        remark: What an interpolation comes to, after `→`; that a value must be given or was taken away.
        set_by: Every place that sets it, the oldest first: the last one counts.
        part_of: The choices of groups that brought the file of the last place here.
        keys: All below a node, or that a group's option sets.
    """

    key: str
    value: str = ""
    remark: str = ""
    set_by: Sequence[Setting] = ()
    part_of: Sequence[Choice] = ()
    keys: Sequence[Key] = ()


def explain(
    key: str, overrides: Sequence[str] = (), config_dir: Path | None = None
) -> Explanation:
    """A value, or a group with all its keys, and where each comes from."""
    with loader(config_dir) as hydra:
        config = compose_with(hydra, overrides)
        origins = trace_origins(hydra, overrides, implied_overrides(config, overrides))
    return explain_job(key, config, origins)


def explain_job(key: str, config: DictConfig, origins: Origins) -> Explanation:
    """As `explain`, of a job that is composed already."""
    key = key.rstrip("=./")
    parts = split_key(key)
    choice = origins.choice_of(key)
    entries = {split_key(entry.key): entry for entry in walk(config)}
    entry = entries.get(parts)
    if choice is not None:
        option = choice.option.replace(",", ", ") or "none"
        keys = _keys_of(choice, origins, entries)
        return Explanation(choice.group, option, set_by=choice.settings, keys=keys)
    if entry is not None and not _is_one_value(entry):
        return Explanation(entry.key, keys=_keys_below(parts, origins, entries))
    chain = origins.chain(parts)
    if entry is None and not (chain and not chain[-1].text):
        if parts[:1] == ("spec",):
            raise ConfigError(_AWAITED, key=key, hint="a run's config.yaml has it")
        candidates = [one.key for position, one in entries.items() if position[0] != "hydra"]
        raise ConfigError(
            f"unknown key or group{did_you_mean(key, [*candidates, *origins.choices], '; ')}",
            key=key,
            hint="`assay train --cfg` shows every key, `assay configs` every group",
        )
    path = None
    if chain:
        path = chain[-1].path
    brought_by = tuple(
        one for one in origins.choices.values() if path is not None and one.holds_file(path)
    )
    value = ""
    remark = "was removed"
    if entry:
        key = entry.key
        value, remark = _raw_and_resolved(entry, chain)
    return Explanation(key, value, remark, tuple(chain), brought_by)


def print_explanation(console: Console, explanation: Explanation) -> None:
    """Print an explanation."""
    line = Text(explanation.key, style="bold")
    if explanation.value:
        line.append(" = ", style="not bold dim").append(explanation.value, style="not bold cyan")
    if explanation.remark:
        line.append(f"  {explanation.remark}", style="not bold")
    console.print(line)
    # The newest first: what counts, then what it overrode.
    settings = [
        (one.where, one.override or shorten(one.text)) for one in reversed(explanation.set_by)
    ]
    print_rows(
        console, [("over" if number else "set by", *one) for number, one in enumerate(settings)]
    )
    for choice in explanation.part_of:
        by = choice.settings[-1].where
        console.print(f"  with    {choice.group}={choice.option}, chosen by {by}", markup=False)
    if explanation.keys:
        console.print()
        over = [
            f"overridden: {one.overridden}" if one.overridden else "" for one in explanation.keys
        ]
        rows = zip(explanation.keys, over, strict=True)
        print_rows(
            console, [(one.key, shorten(one.value), one.where, note) for one, note in rows]
        )


def _is_one_value(entry: Entry) -> bool:
    """Whether it is shown in one line: a plain value, a list of such, or an empty mapping."""
    if not entry.is_container:
        return True
    nested = [other for other in walk(entry.node) if other.is_container]
    return not len(entry.node) or not (OmegaConf.is_dict(entry.node) or nested)


def _raw_and_resolved(entry: Entry, chain: Sequence[Setting]) -> tuple[str, str]:
    if entry.is_missing:
        return "???", f"must be given: {entry.key}=…"
    if entry.is_container:
        return to_yaml_line(
            OmegaConf.to_container(entry.node, resolve=False, enum_to_str=True)
        ), ""
    raw = to_yaml_line(entry.raw)
    if entry.is_interpolation:
        return str(entry.raw), f"→ {_resolve_text(entry)}"
    if chain and "${" in chain[-1].text:
        return chain[-1].text, f"→ {raw}"
    return raw, ""


def _resolve_text(entry: Entry) -> str:
    try:
        value: Any = entry.parent[entry.name]
    except OmegaConfBaseException:
        if "spec." in str(entry.raw):
            return _AWAITED
        return "cannot be resolved"
    return shorten(
        to_yaml_line(OmegaConf.to_container(value) if OmegaConf.is_config(value) else value)
    )


def _keys_of(choice: Choice, origins: Origins, entries: _Entries) -> list[Key]:
    package = split_key(choice.package)
    if package and package == split_key(choice.group.replace("/", ".")):
        return _keys_below(package, origins, entries)
    # A fragment of another node, such as `device` in the trainer, or of the whole config: what its file sets.
    keys: list[Key] = []
    file = f"/{choice.group}/{choice.option}.yaml"
    for parts, kind, _, setting in origins.events:
        if kind != "mapping" and setting.path and setting.path.as_posix().endswith(file):
            last = origins.chain(parts)[-1]
            over = ""
            if last != setting:
                over = f"{last.override or last.text}, {last.where}"
            keys.append(Key(setting.key, setting.text, setting.where, over))
    return keys


def _keys_below(node: _Parts, origins: Origins, entries: _Entries) -> list[Key]:
    keys: list[Key] = []
    leaves = {parts for parts, entry in entries.items() if _is_one_value(entry)}
    for parts, entry in entries.items():
        if parts[: len(node)] == node and parts in leaves and parts[:-1] not in leaves:
            chain = origins.chain(parts)
            value, _ = _raw_and_resolved(entry, chain)
            keys.append(Key(entry.key, value, chain[-1].where if chain else ""))
    return keys


def yaml_entries(path: Path, package: tuple[str, ...] = ()) -> list[YamlEntry]:
    """Every key of a config file, a mapping before what is in it; the defaults list is left out."""
    node = _read(path)
    if node is None:
        if package:
            return [(package, "mapping", "{}", 1)]
        return []
    entries = list(_walk(node, package, node.start_mark.line + 1))
    entries = [
        entry for entry in entries if entry[0][: len(package) + 1] != (*package, "defaults")
    ]
    if package:
        return entries
    return entries[1:]


def read_defaults(path: Path) -> list[tuple[str, int]]:
    """The items of a file's defaults list as written, each with its line."""
    node = _read(path)
    for key, value in node.value if isinstance(node, yaml.MappingNode) else ():
        if key.value == "defaults" and isinstance(value, yaml.SequenceNode):
            return [(_text(item).strip("{}"), item.start_mark.line + 1) for item in value.value]
    return []


def implied_overrides(config: DictConfig, overrides: Sequence[str]) -> list[str]:
    """Overrides that the task of the data adds to the typed ones, such as `task=binary`."""
    # `${…}` as typed
    composed: Any = OmegaConf.to_container(config.hydra.overrides.task, resolve=False)
    return [override for override in composed if override not in overrides]


YamlEntry = tuple[tuple[str, ...], Literal["mapping", "list", "value"], str, int]
"""Names and indices of a key, what stands there, its text in a line, and the number of its line."""


def _read(path: Path) -> yaml.Node | None:
    content = path.read_text(encoding="utf-8")
    node: yaml.Node | None = yaml.compose(
        content, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    )
    return node


def _walk(node: yaml.Node, key: tuple[str, ...], line: int) -> Iterator[YamlEntry]:
    if isinstance(node, yaml.MappingNode):
        yield key, "mapping", _text(node), line
        for name, value in node.value:
            yield from _walk(value, (*key, str(name.value)), name.start_mark.line + 1)
    elif isinstance(node, yaml.SequenceNode):
        yield key, "list", _text(node), line
        for index, value in enumerate(node.value):
            yield from _walk(value, (*key, str(index)), value.start_mark.line + 1)
    else:
        yield key, "value", _text(node), line


def _text(node: yaml.Node) -> str:
    """A node as one line of YAML."""
    if isinstance(node, yaml.MappingNode):
        return "{" + ", ".join(f"{_text(key)}: {_text(value)}" for key, value in node.value) + "}"
    if isinstance(node, yaml.SequenceNode):
        return "[" + ", ".join(map(_text, node.value)) + "]"
    value = str(node.value)
    # With a style it stands in quotes, or in a block of several lines.
    if getattr(node, "style", None):
        return json.dumps(value, ensure_ascii=False)
    return value or "null"
