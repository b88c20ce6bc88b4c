"""Walking over a config without resolving anything in it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple, final

from omegaconf import DictConfig, ListConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from assay.config.omegaconf_internals import (
    CONTAINERS,
    child_node,
    is_interpolation,
    is_missing,
    is_null,
    kept,
    raw_value,
)
from assay.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


OF_SPEC = re.compile(r"\$\{spec\.[\w.]+\}", re.ASCII)
_DEEPEST = 16
_OF_KEY = re.compile(r"\$\{([A-Za-z_][\w.\[\]]*)\}", re.ASCII)


@final
class Entry(NamedTuple):
    """One place in a config."""

    key: str
    parent: Any
    name: Any
    node: Any
    value: Any = None
    """What an interpolation leads to; its text where it waits for the data, or cannot be resolved."""
    is_followed: bool = False
    """Whether it is not written under this key, but where an interpolation leads to."""

    @property
    def raw(self) -> Any:
        """What is written there: the text of an interpolation, and not what it stands for."""
        return raw_value(self.node)

    @property
    def is_container(self) -> bool:
        """A mapping or list written in place; not null, not `???`, no interpolation."""
        # By type: isinstance asks an ABC, which takes ten times as long, and a job has hundreds of places.
        return type(self.node) in CONTAINERS and not (
            is_null(self.node) or self.is_missing or self.is_interpolation
        )

    @property
    def is_missing(self) -> bool:
        """Whether it says `???`."""
        return is_missing(self.node)

    @property
    def is_interpolation(self) -> bool:
        """Whether it says `${…}`."""
        return is_interpolation(self.node)


def split_key(key: str) -> tuple[str, ...]:
    """Names and indices of a full key."""
    return tuple(re.findall(r"[^.\[\]]+", key))


def join_key(parts: Sequence[str]) -> str:
    """The full key of names and indices."""
    return "".join(f"[{part}]" if part.isdigit() else f".{part}" for part in parts).removeprefix(
        "."
    )


def walk(config: DictConfig | ListConfig, prefix: str = "") -> Iterator[Entry]:
    """Every place in a config, a container before what is in it."""
    names: Any
    if isinstance(config, DictConfig):
        names = config
    else:
        names = range(len(config))
    for name in names:
        if isinstance(config, DictConfig):
            key = f"{prefix}.{name}"
            if not prefix:
                key = str(name)
        else:
            key = f"{prefix}[{name}]"
        entry = Entry(key, config, name, child_node(config, name))
        yield entry
        if entry.is_container:
            yield from walk(entry.node, key)


@kept
def places(config: DictConfig) -> list[Entry]:
    """Every place in a config with its value; what an interpolation leads to comes where it arrives, too."""
    return list(follow(config))


def follow(config: DictConfig | ListConfig, prefix: str = "", depth: int = 0) -> Iterator[Entry]:
    """The same of a part of a config."""
    for entry in walk(config, prefix):
        value = _value_of(entry)
        yield entry._replace(value=value, is_followed=depth > 0)
        if entry.is_interpolation and OmegaConf.is_config(value):
            if depth == _DEEPEST:
                raise ConfigError(
                    "circular interpolation", key=entry.key, hint=f"{entry.key}=VALUE"
                )
            yield from follow(value, entry.key, depth + 1)


def _value_of(entry: Entry) -> Any:
    raw = entry.raw
    if entry.is_container or not entry.is_interpolation or OF_SPEC.fullmatch(raw):
        return raw
    try:
        return entry.parent[entry.name]
    except OmegaConfBaseException:
        return raw


def walk_plain(value: Any, at: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Names and indices of everything in plain data, and what is there; a container before what is in it."""
    yield at, value
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from walk_plain(inner, (*at, str(name)))
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from walk_plain(inner, (*at, str(index)))


def target_nodes(config: DictConfig) -> Iterator[tuple[str, DictConfig]]:
    """Full key of each mapping with a `_target_`, and the mapping."""
    for entry in places(config):
        if entry.is_followed or not entry.is_container:
            continue
        if isinstance(entry.node, DictConfig) and "_target_" in entry.node:
            yield entry.key, entry.node


def source_key(config: DictConfig, key: str) -> str:
    """The full key where a value is written that others only interpolate: what a person would type.

    >>> config = OmegaConf.create({"size": 3, "crop": {"size": "${size}"}, "width": "${spec.width}"})
    >>> source_key(config, "crop.size"), source_key(config, "width")
    ('size', 'width')
    """
    for _ in range(8):  # they may go round in circles
        parent, _, name = key.replace("[", ".").replace("]", "").rpartition(".")
        outer = config
        if parent:
            outer = OmegaConf.select(config, parent)
        node = None
        if outer:
            node = child_node(outer, name if isinstance(outer, DictConfig) else int(name))
        text = ""
        if node is not None and is_interpolation(node):
            text = raw_value(node)
        match = _OF_KEY.fullmatch(str(text))
        if match is None or match[1].startswith(("spec.", "hydra.")):
            return key
        key = match[1]
    return key
