"""Build the objects that a resolved config describes. Nothing else calls what a config names."""

from __future__ import annotations

import functools
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, final

from omegaconf import OmegaConf

from assay.errors import AssayError, ConfigError
from assay.targets.annotation import accepts, as_typed, format_annotation
from assay.targets.resolve import resolve

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

WORDS: Final[Mapping[str, Any]] = {
    "_args_": list[Any],
    "_partial_": bool,
    "_recursive_": bool,
    "_convert_": Literal["none", "partial", "object", "all"],
}
"""Keys of a node that are not arguments of its call, and what each may say."""


@final
class CallError(Exception):
    """A call failed; the reason is the cause."""

    def __init__(self, key: str, reason: Exception) -> None:
        super().__init__(f"{key}: {reason!r}")
        self.key, self.reason = key, reason


@final
class _Words(NamedTuple):
    """What a node says for those inside of it."""

    convert: str
    recursive: bool
    packages: tuple[str, ...]


def instantiate(tree: Any, key: str = "", packages: Sequence[str] = (), /, **objects: Any) -> Any:
    """Call what a tree describes, from the inside out; its words mean what they mean in Hydra 1.3."""
    # `_args_`, `_partial_`, `_recursive_` and `_convert_` are Hydra's; containers become lists and dicts
    # under all but `_convert_: none`, since a tree of plain data holds no structured config.
    return _build(tree, key, _Words("all", recursive=True, packages=tuple(packages)), objects)


def _build(value: Any, key: str, words: _Words, objects: Mapping[str, Any] = MappingProxyType({})) -> Any:
    if isinstance(value, list):
        items = [_build(inner, f"{key}[{i}]", words) for i, inner in enumerate(value)]
        return _wrap_container(items, words.convert)
    if not isinstance(value, dict):
        return value
    check_words(key, value)
    convert, recursive = value.get("_convert_", words.convert), value.get("_recursive_", words.recursive)
    words = _Words(convert, recursive, words.packages)
    prefix = f"{key}." if key else ""
    if "_target_" not in value:
        nodes = {name: _build(inner, f"{prefix}{name}", words) for name, inner in value.items()}
        return _wrap_container(nodes, convert)
    arguments = {
        name: _unwrap_container(_build(inner, f"{prefix}{name}", words), convert)
        if recursive
        else _wrap_container(inner, convert)
        for name, inner in value.items()
        if name == "_args_" or name not in ("_target_", *WORDS, *objects)
    }
    by_position = arguments.pop("_args_", ())
    target = resolve(key, value["_target_"], words.packages)
    try:
        if value.get("_partial_"):
            return functools.partial(target, *by_position, **arguments, **objects)
        return target(*by_position, **arguments, **objects)
    except AssayError:
        raise
    except Exception as error:  # whatever a class raises while it is made
        raise CallError(key, error) from error


def _wrap_container(value: Any, convert: str) -> Any:
    """A list or dict of the kind that its class is to see."""
    plain = convert != "none" or not isinstance(value, list | dict)
    return value if plain else OmegaConf.create(value, flags={"allow_objects": True})


def _unwrap_container(value: Any, convert: str) -> Any:
    """What is inside may have asked for OmegaConf's containers, and the node around it not."""
    return OmegaConf.to_container(value) if convert != "none" and OmegaConf.is_config(value) else value


def check_words(key: str, node: Mapping[str, Any]) -> None:
    """Refuse invalid values of a node's special keys."""
    for name, expected in WORDS.items():
        if name in node and not accepts(expected, value := _unwrap_container(node[name], "all")):
            full_key = f"{key}.{name}" if key else name
            text = f"expected {format_annotation(expected)}, got {as_typed(value)}"
            raise ConfigError(
                text, key=full_key, hint="leave it out" if "[" in full_key else f"leave it out: ~{full_key}"
            )
