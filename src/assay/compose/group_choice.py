"""Who chose the option of each group."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING, final

from hydra.core.default_element import DefaultsTreeNode, GroupDefault

from assay.config.source_location import COMMAND_LINE, THE_DATA, Setting, config_file, defaults, shown

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence
    from pathlib import Path

    from hydra.core.default_element import InputDefault
    from hydra.core.override_parser.types import Override

    from assay.config.hydra_internals import DefaultsList, IConfigRepository


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
    """The choice of every group that a composition knows, Hydra's own left out.

    Args:
        merged: Hydra's defaults list.
        typed: The overrides.
        repository: Hydra's.
        implied: Those of the overrides that nobody typed.
    """
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
