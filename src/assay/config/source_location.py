"""Where a value is written: what a YAML file says in which line, or the command line."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, final

import yaml

from assay.config.hydra_internals import file_of
from assay.terminal import in_a_line

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from assay.config.hydra_internals import IConfigRepository


COMMAND_LINE = "command line"
THE_DATA = "what has to be predicted"


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


def config_file(repository: IConfigRepository, name: str) -> Path | None:
    """The file behind one of Hydra's config names; None for those that are no files."""
    for source in repository.get_sources():
        if source.is_config(name):
            file = file_of(source, name)
            return file if source.scheme() == "file" else None
    return None


def split(key: str) -> tuple[str, ...]:
    """Names and indices of a full key."""
    return tuple(re.findall(r"[^.\[\]]+", key))


def joined(parts: Sequence[str]) -> str:
    """The full key of names and indices."""
    return "".join(f"[{part}]" if part.isdigit() else f".{part}" for part in parts).removeprefix(".")


Kind = Literal["mapping", "list", "value"]
_MERGE = "tag:yaml.org,2002:merge"
_WIDEST = 80


@final
@dataclass(frozen=True)
class Written:
    """One key of a YAML file, or one item of a list."""

    key: tuple[str, ...]
    kind: Kind
    text: str
    line: int


def written(path: Path, package: tuple[str, ...] = ()) -> list[Written]:
    """Every key of a config file, a mapping before what is in it; the defaults list is left out."""
    node = _read(path)
    if node is None:
        return [Written(package, "mapping", "{}", 1)] if package else []
    found = list(_walk(node, package, node.start_mark.line + 1))
    skipped = (*package, "defaults")
    found = [one for one in found if one.key[: len(skipped)] != skipped]
    return found if package else found[1:]


def defaults(path: Path) -> list[tuple[str, int]]:
    """The items of a file's defaults list as written, each with its line."""
    for key, value in _pairs(_read(path)):
        if key.value == "defaults" and isinstance(value, yaml.SequenceNode):
            return [(text(item).strip("{}"), item.start_mark.line + 1) for item in value.value]
    return []


def text(node: yaml.Node) -> str:
    """A node as one line of YAML."""
    if isinstance(node, yaml.MappingNode):
        return "{" + ", ".join(f"{text(key)}: {text(value)}" for key, value in node.value) + "}"
    if isinstance(node, yaml.SequenceNode):
        return "[" + ", ".join(text(item) for item in node.value) + "]"
    value = str(node.value)
    style = getattr(node, "style", None)
    if style == "'":
        return "'" + value.replace("'", "''") + "'"
    if style:  # in double quotes, or a block of several lines
        return json.dumps(value, ensure_ascii=False)
    return value or "null"


def shortened(value: str) -> str:
    """At most eighty characters of a value, in a line."""
    value = in_a_line(value)
    return value if len(value) <= _WIDEST else value[: _WIDEST - 1] + "…"


def _read(path: Path) -> yaml.Node | None:
    content = path.read_text(encoding="utf-8")
    try:
        node: yaml.Node | None = yaml.compose(content, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except yaml.YAMLError:  # which Python's parser tells as whoever loads the file does
        node = yaml.compose(content, Loader=yaml.SafeLoader)
    return node


def _pairs(node: yaml.Node | None) -> Iterator[tuple[Any, yaml.Node]]:
    """Keys and values of a mapping; what `<<` merges comes first, so that the mapping's own win."""
    if not isinstance(node, yaml.MappingNode):
        return
    for key, value in node.value:
        if key.tag == _MERGE:
            for source in value.value if isinstance(value, yaml.SequenceNode) else [value]:
                yield from _pairs(source)
    yield from ((key, value) for key, value in node.value if key.tag != _MERGE)


def _walk(node: yaml.Node, key: tuple[str, ...], line: int) -> Iterator[Written]:
    if isinstance(node, yaml.MappingNode):
        yield Written(key, "mapping", text(node), line)
        for name, value in _pairs(node):
            yield from _walk(value, (*key, str(name.value)), name.start_mark.line + 1)
    elif isinstance(node, yaml.SequenceNode):
        yield Written(key, "list", text(node), line)
        for index, value in enumerate(node.value):
            yield from _walk(value, (*key, str(index)), value.start_mark.line + 1)
    else:
        yield Written(key, "value", text(node), line)
