"""Where each value of a composed config was written, and who chose the option of each group."""

from __future__ import annotations

import copy
import re
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, final

import yaml
from hydra.core.default_element import DefaultsTreeNode, GroupDefault
from omegaconf import OmegaConf

from assay.compose.compose import PRIMARY, choices, compose_with, implied_overrides, loader, trust_for
from assay.config.hydra_internals import any_reaches_out, defaults_of
from assay.config.source_location import (
    COMMAND_LINE,
    THE_DATA,
    Setting,
    config_file,
    defaults,
    joined,
    split,
    written,
)
from assay.config.tree import walk
from assay.config.yaml_file import shown
from assay.errors import ConfigError
from assay.paths import CONF_DIR
from assay.targets.trust import project_folder

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence
    from pathlib import Path

    from hydra.core.default_element import InputDefault, ResultDefault
    from hydra.core.override_parser.types import Override
    from omegaconf import DictConfig

    from assay.config.hydra_internals import DefaultsList, Hydra, IConfigRepository


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

    def brought(self, path: Path) -> bool:
        """Whether a file is of the group, so that its choice brought the file here."""
        group = self.group.partition("@")[0]
        files = [f"/{group}/{option}.yaml" for option in self.option.split(",") if option]
        in_folder = path.parent.as_posix().endswith(f"/{group}")
        return bool(files) and (in_folder or path.as_posix().endswith(tuple(files)))


def find_choices(
    merged: DefaultsList,
    typed: Sequence[Override],
    repository: IConfigRepository,
    implied: Collection[str] = (),
) -> dict[str, Choice]:
    """The choice of every group that a composition knows, Hydra's own left out."""
    entries: dict[str, list[tuple[str, Setting]]] = {}
    changes: dict[str, list[tuple[str, Setting]]] = {}
    packages: dict[str, str] = {}
    for node in _nodes(merged.defaults_tree):
        parent = node.node if isinstance(node, DefaultsTreeNode) else node
        if isinstance(parent, GroupDefault):
            packages[parent.get_override_key()] = parent.get_final_package()
        for default, setting in _written_in(parent, repository):
            key = default.get_override_key()
            packages.setdefault(key, default.get_final_package())
            kind = changes if default.override else entries
            kind.setdefault(key, []).append((_option(default.value), setting))
    for override in typed:
        key = override.get_key_element().lstrip("+~")
        if repository.group_exists(override.key_or_group) and not isinstance(override.value(), dict):
            line = str(override.input_line)
            option = "" if override.is_delete() else _option(override.value())
            where = THE_DATA if line in implied else COMMAND_LINE
            changes.setdefault(key, []).insert(0, (option, Setting(key, option, where, override=line)))
            packages.setdefault(key, str(override.package or override.key_or_group.replace("/", ".")))
    found = {}
    for key in (*entries, *(key for key in changes if key not in entries)):
        if not key.startswith("hydra"):
            # Of several that override an option, Hydra takes the one it meets first.
            named = [*entries.get(key, []), *reversed(changes.get(key, []))]
            found[key] = Choice(key, packages[key], named[-1][0], tuple(setting for _, setting in named))
    return found


def _nodes(tree: DefaultsTreeNode) -> Iterator[DefaultsTreeNode | InputDefault]:
    """In the order in which Hydra meets them: the last of a list first."""
    yield tree
    for child in reversed(tree.children or []):
        if isinstance(child, DefaultsTreeNode):
            yield from _nodes(child)
        elif not child.is_self():
            yield child


def _written_in(
    parent: InputDefault, repository: IConfigRepository
) -> Iterator[tuple[GroupDefault, Setting]]:
    """The groups in one file's defaults list, each with its line."""
    if parent.is_virtual() or parent.is_deleted() or parent.get_name() is None or parent.is_missing():
        return
    name = parent.get_config_path()
    path = config_file(repository, name)
    loaded = repository.load_config(name)
    if path is None or loaded is None:
        return
    lines = defaults(path)
    for default, (text, line) in zip(copy.deepcopy(loaded.defaults_list or []), lines, strict=False):
        if isinstance(default, GroupDefault):
            default.update_parent(parent.get_group_path(), parent.get_final_package())
            key = default.get_override_key()
            yield default, Setting(key, text, f"{shown(path)}:{line}", path, line)


def _option(value: object) -> str:
    if isinstance(value, list):
        return ",".join(str(one) for one in value)
    return "" if value is None else str(value)


_Parts = tuple[str, ...]
_Kind = Literal["mapping", "list", "value", "gone"]


@final
@dataclass
class Origins:
    """Every setting of a composition, in the order in which they are merged."""

    choices: dict[str, Choice] = field(default_factory=dict)
    _events: list[tuple[_Parts, _Kind, int, Setting]] = field(default_factory=list)
    _kinds: dict[_Parts, _Kind] = field(default_factory=dict)
    _layer: int = 0

    def chain(self, key: str) -> list[Setting]:
        """Every setting of a key, the oldest first; the last one made it what it is."""
        return self._chain(split(key))

    def _chain(self, parts: _Parts) -> list[Setting]:
        layers: dict[int, Setting] = {}
        for at, kind, layer, setting in self._events:
            replaced = kind != "mapping" and parts[: len(at)] == at
            if at == parts or replaced:
                layers[layer] = setting  # the nearer one comes later
        return list(layers.values())

    def nearest(self, key: str) -> Setting | None:
        """What is to be looked at when a key is wrong: its last setting, or that of what it lies in."""
        parts = split(key)
        target = (*parts, "_target_")
        replaced = self._kinds.get(parts) == "value" or (
            target in self._kinds and self.chain(joined(target))[-1].where == COMMAND_LINE
        )
        if not replaced and (choice := self.choice_of(key)):
            return choice.settings[-1]
        while parts:
            if (*parts, "_target_") in self._kinds:
                return self.chain(joined((*parts, "_target_")))[-1]
            if parts in self._kinds or any(at == parts for at, *_ in self._events):
                return self.chain(joined(parts))[-1]
            parts = parts[:-1]
        return None

    def choice_of(self, key: str) -> Choice | None:
        """The group that goes by this name, or whose option is put there."""
        if key in self.choices:
            return self.choices[key]
        packages = [one for one in self.choices.values() if one.package and split(one.package) == split(key)]
        return next(iter(packages), None)

    def settings_in(self, option: str) -> list[Setting]:
        """What the file of an option sets."""
        name = f"/{option}.yaml"
        return [
            setting
            for _, kind, _, setting in self._events
            if kind != "mapping" and setting.path and setting.path.as_posix().endswith(name)
        ]

    def put(self, at: _Parts, kind: _Kind, setting: Setting) -> None:
        """Merge one setting, as OmegaConf does."""
        had = self._kinds.get(at)
        if setting.text == "???" and had is not None:
            return  # says only that something must be there, and it is
        for end in range(1, len(at)):
            if self._kinds.get(at[:end], "value") == "value":
                self._kinds[at[:end]] = "mapping"
        if kind != "mapping" or had not in (None, "mapping"):
            for other in [one for one in self._kinds if one[: len(at)] == at]:
                del self._kinds[other]
        if kind != "gone":
            self._kinds[at] = kind
        self._events.append((at, kind, self._layer, setting))

    def next_layer(self) -> None:
        """The next file or override begins."""
        self._layer += 1

    def set_across_groups(self) -> dict[str, str]:
        """What an option sets outside of its own group: values, and the options of other groups."""
        found = {}
        for group, choice in self.choices.items():
            path = choice.settings[-1].path
            by = self._option_of(path) if path is not None else ""
            if by and not group.startswith(f"{by.partition('=')[0]}/"):
                found[group] = by
        wide = [one for one in self.choices.values() if not one.package and one.option]
        for at, kind, _, setting in self._events:
            path, key = setting.path, joined(at)
            if kind == "mapping" or path is None or "[" in key:
                continue
            if any(one.brought(path) for one in wide) and self._chain(at)[-1] is setting:
                found[key] = self._option_of(path)
        return found

    def check_replaced(self, typed: Collection[str]) -> None:
        """Refuse an option whose value an option of another group replaces, both being put into one node."""
        for at, kind, _, setting in self._events:
            key, last = joined(at), self._chain(at)[-1]
            lost, won = (self._choice_of_file(one.path) for one in (setting, last))
            if kind == "mapping" or key in typed or lost is won:
                continue
            if lost is None or won is None or not (lost.package and won.package and setting.path):
                continue
            if yaml.safe_load(setting.text) == yaml.safe_load(last.text):
                continue
            chosen = len(lost.settings) > 1 and setting.path.stem in lost.option.split(",")
            if chosen or CONF_DIR not in setting.path.parents:
                raise ConfigError(
                    f"{lost.group}={lost.option} says {setting.text}, {won.group}={won.option} {last.text}",
                    key=key,
                    file=setting.where,
                    hint=f"{key}={setting.text} or {key}={last.text}, or take it out of one of the two files",
                )

    def _option_of(self, path: Path) -> str:
        """What is typed to choose the option that a file is of; empty for the main config."""
        found = self._choice_of_file(path)
        return f"{found.group}={found.option}" if found else ""

    def _choice_of_file(self, path: Path | None) -> Choice | None:
        return next((one for one in self.choices.values() if path and one.brought(path)), None)


def origins(overrides: Sequence[str] = (), config_dir: Path | None = None) -> Origins:
    """Where the values of a job come from."""
    with loader(config_dir) as hydra:
        trust_for(hydra, overrides)  # before Hydra searches where it is told to
        return replayed(hydra, overrides)


def set_across_groups(
    hydra: Hydra, composed: DictConfig, overrides: Sequence[str], typed: Collection[str] = ()
) -> dict[str, str]:
    """What the options of a job set outside of their own groups; see `Origins.set_across_groups`."""
    options = [
        f"{group}/{name}"
        for group, chosen in choices(composed.hydra).items()
        for name in (chosen if isinstance(chosen, list) else [chosen])
        if name is not None
    ]
    if not any_reaches_out(hydra.config_loader, options):
        return {}
    found = replayed(hydra, overrides, implied_overrides(composed, overrides))
    found.check_replaced(typed)
    return found.set_across_groups()


def replayed(hydra: Hydra, overrides: Sequence[str], implied: Sequence[str] = ()) -> Origins:
    """As `origins`, with a loader that is already open."""
    merged, parsed, repository = defaults_of(hydra.config_loader, PRIMARY, [*overrides, *implied])
    found = Origins(choices=find_choices(merged, parsed, repository, implied))
    for default in merged.defaults:
        found.next_layer()
        _add_file(found, default, repository)
        if default.primary:
            _add_project(found, project_folder(hydra))
    for override in merged.config_overrides:
        found.next_layer()
        _add_override(found, override)
    found.next_layer()
    found.put(("run_dir",), "value", Setting("run_dir", "${hydra.run.dir}", "assay itself"))
    return found


def _add_file(found: Origins, default: ResultDefault, repository: IConfigRepository) -> None:
    package = split(default.package or "")
    name = str(default.config_path)
    path = config_file(repository, name)
    if path is not None:
        place = shown(path)
        for one in written(path, package):
            where = f"{place}:{one.line}"
            found.put(one.key, one.kind, Setting(joined(one.key), one.text, where, path, one.line))
        return
    loaded = repository.load_config(name)
    if loaded is None or not OmegaConf.is_config(loaded.config):
        return
    config: Any = loaded.config
    for entry in walk(config):  # Hydra's own defaults are classes, not files
        key = (*package, *split(entry.key))
        kind: _Kind = "mapping" if entry.is_container else "value"
        text = "" if entry.is_container else plain(entry.raw)
        found.put(key, kind, Setting(joined(key), text, "Hydra's own default"))


def _add_project(found: Origins, folder: Path | None) -> None:
    """What the user's project says about itself beside its groups."""
    path = folder / "project.yaml" if folder else None
    if path is None or not path.is_file():
        return
    found.next_layer()
    for one in written(path):
        where = f"{shown(path)}:{one.line}"
        found.put(one.key, one.kind, Setting(joined(one.key), one.text, where, path, one.line))


def _add_override(found: Origins, override: Override) -> None:
    typed = str(override.input_line)
    key = split(override.key_or_group)
    if override.is_delete():
        found.put(key, "gone", Setting(joined(key), "", COMMAND_LINE, override=typed))
        return
    pending: list[tuple[_Parts, Any]] = [(key, override.value())]
    while pending:
        at, value = pending.pop(0)
        setting = Setting(joined(at), plain(value), COMMAND_LINE, override=typed)
        if isinstance(value, dict):
            found.put(at, "mapping", setting)
            pending += [((*at, str(name)), one) for name, one in value.items()]
        elif isinstance(value, list):
            found.put(at, "list", setting)
            pending += [((*at, str(index)), one) for index, one in enumerate(value)]
        else:
            found.put(at, "value", setting)


def plain(value: Any) -> str:
    """A value as one line of YAML."""
    text: str = yaml.safe_dump(
        value, default_flow_style=True, width=float("inf"), allow_unicode=True, sort_keys=False
    )
    return text.removesuffix("\n").removesuffix("\n...")


@contextmanager
def located(overrides: Sequence[str], config_dir: Path | None = None) -> Iterator[None]:
    """Say in every `ConfigError` that leaves this block in which file and line its key was written."""
    try:
        yield
    except ConfigError as error:
        locate(error, overrides, config_dir)
        raise


def locate(error: ConfigError, overrides: Sequence[str], config_dir: Path | None = None) -> ConfigError:
    """Add the file and line of its key to an error that has none; never raises."""
    key = error.key.partition(",")[0]
    if not key or error.file:
        return error
    with suppress(Exception):  # an error that cannot be placed is still to be told
        error.add_file(_place(key, overrides, config_dir))
    return error


def _place(key: str, overrides: Sequence[str], config_dir: Path | None) -> str:
    try:
        with loader(config_dir) as hydra:
            trust_for(hydra, overrides)  # before Hydra searches where it is told to
            implied: list[str] = []
            with suppress(ConfigError):
                implied = implied_overrides(compose_with(hydra, overrides), overrides)
            setting = replayed(hydra, overrides, implied).nearest(key)
    except Exception:  # the overrides do not compose: only what was typed is known
        typed = {re.split(r"[=@]", override.lstrip("+~"), maxsplit=1)[0] for override in overrides}
        return COMMAND_LINE if key in typed else ""
    return setting.where if setting else ""
