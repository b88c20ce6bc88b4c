"""The private parts of OmegaConf that assay uses: nodes as they are written, unresolved."""

from __future__ import annotations

import copy
import functools
from collections import defaultdict
from typing import TYPE_CHECKING, Any, TypeVar

import omegaconf
from omegaconf import AnyNode, DictConfig, ListConfig, OmegaConf, base, grammar_parser
from omegaconf._utils import get_omega_conf_dumper

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from omegaconf import Node
    from omegaconf.basecontainer import BaseContainer

Made = TypeVar("Made")
_KEPT = "_assay_"

text_representer = get_omega_conf_dumper().str_representer
"""Quotes the text that OmegaConf would read as something else."""

CONTAINERS = (DictConfig, ListConfig, getattr(omegaconf, "TupleConfig", ListConfig))
"""Types of nodes that hold others; a structured config has tuples from OmegaConf 2.4 on."""
_IS_2_3 = CONTAINERS[-1] is ListConfig
_register: Any = OmegaConf.register_new_resolver if _IS_2_3 else OmegaConf.register_resolver
register_resolver = functools.partial(_register, replace=True)
"""`register_resolver` of OmegaConf 2.4, which has another meaning in 2.3."""
_UNLIMITED: Any = {} if _IS_2_3 else {"max_yaml_expanded_nodes": None}


def load_unlimited(path: Path) -> DictConfig | ListConfig:
    """Load a YAML file of any size; OmegaConf 2.4 has a limit."""
    return OmegaConf.load(path, **_UNLIMITED)


def _copy_metadata(metadata: base.Metadata, memo: dict[int, Any]) -> base.Metadata:
    """As `copy.deepcopy` does it by way of pickle, which takes up half of the time to copy a config."""
    fields = vars(metadata)
    copied = object.__new__(type(metadata))
    vars(copied).update(fields)
    if fields["flags"] is not None:
        copied.flags = dict(fields["flags"])
    else:
        copied.flags = None
    values = fields["resolver_cache"]
    if values:
        copied.resolver_cache = copy.deepcopy(values, memo)
    else:
        copied.resolver_cache = defaultdict(dict)
    return copied


setattr(base.Metadata, "__deepcopy__", _copy_metadata)  # noqa: B010 - mypy
# The same few interpolations are parsed a hundred times for a job, and a tree is only read.
setattr(base, "parse", functools.lru_cache(4096)(grammar_parser.parse))  # noqa: B010 - mypy


def raw_value(node: Node) -> Any:
    """What is written in a node: the text of an interpolation, and not what it stands for."""
    return node._value()


def child_node(container: BaseContainer, name: Any) -> Any:
    """The node under a key or index, unresolved; None where a mapping has no such key."""
    return container._get_node(name, validate_access=False)


def parent_of(node: Node) -> Any:
    """The container around a node; None at the top."""
    return node._get_parent()


def root_of(node: Node) -> Any:
    """The config that a node is part of."""
    return node._get_root()


def dereference(node: Node) -> Node:
    """The node that an interpolation stands for."""
    return node._dereference_node()


def kept(make: Callable[[DictConfig], Made]) -> Callable[[DictConfig], Made]:
    """Keep what a function makes of a whole config for as long as the config is read-only."""

    @functools.wraps(make)
    def look_up(config: DictConfig) -> Made:
        if not OmegaConf.is_readonly(config):
            return make(config)
        attributes = vars(config)  # which no copy of the config takes along
        name = f"{_KEPT}{make.__name__}"
        if name not in attributes:
            attributes[name] = make(config)
        made: Made = attributes[name]
        return made

    return look_up


def thaw(config: DictConfig) -> None:
    """Let a config be changed again, and forget what was made of it."""
    OmegaConf.set_readonly(config, False)
    attributes = vars(config)
    for name in [name for name in attributes if name.startswith(_KEPT)]:
        del attributes[name]


def is_untyped(node: Node) -> bool:
    """Whether a node is as YAML makes it; one of a structured config converts and refuses values."""
    if type(node) is AnyNode:
        return True
    return type(node) in (DictConfig, ListConfig) and node._metadata.object_type in (
        dict,
        list,
        None,
    )


def is_null(node: Node) -> bool:
    """Whether null is written in a node."""
    return bool(node._is_none())


def is_missing(node: Node) -> bool:
    """Whether `???` is written in a node."""
    return bool(node._is_missing())


def is_interpolation(node: Node) -> bool:
    """Whether a node stands for something else."""
    return bool(node._is_interpolation())
