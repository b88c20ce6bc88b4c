"""Do the arguments of every `_target_` fit its signature?"""

from __future__ import annotations

import inspect
import types
import typing
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from hydra.utils import get_object
from omegaconf import DictConfig, ListConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from assay.config.composition_error import did_you_mean
from assay.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator

_OF_HYDRA = {"_target_", "_args_", "_partial_", "_convert_", "_recursive_"}
_EXTRAS = {
    "scheduler": {"interval", "frequency", "monitor"},
    "trainer": {"compile", "channels_last", "matmul_precision"},
}
"""Keys that `assemble` takes off a node before it is built."""


def check_signatures(config: DictConfig) -> None:
    """Refuse arguments that no call would take.

    Args:
        config: A job; values that wait for the data (`${spec.…}`) are not looked at.

    Raises:
        ConfigError: A target cannot be imported, has no such argument, or wants another type.
    """
    for key, node in _targets(config, ""):
        _check_node(key, node)


def _targets(node: Any, key: str) -> Iterator[tuple[str, DictConfig]]:
    if isinstance(node, DictConfig) and not node._is_none() and not node._is_missing():
        if "_target_" in node:
            yield key, node
        for name in node:
            child = node._get_node(name)
            if not child._is_interpolation():
                yield from _targets(child, f"{key}.{name}" if key else str(name))
    elif isinstance(node, ListConfig) and not node._is_none() and not node._is_missing():
        for index in range(len(node)):
            child = node._get_node(index)
            if not child._is_interpolation():
                yield from _targets(child, f"{key}[{index}]")


def _check_node(key: str, node: DictConfig) -> None:
    try:
        target = get_object(str(node._target_))
    except Exception as error:  # whatever importing somebody's module raises
        raise ConfigError(f"{node._target_!r} cannot be imported: {_root(error)}", key=f"{key}._target_") from error
    try:
        signature = inspect.signature(target)
    except (TypeError, ValueError):
        return  # built-ins without a signature
    parameters = signature.parameters
    takes_any = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
    hints = _hints(target)
    for name in node:
        if name in _OF_HYDRA or name in _EXTRAS.get(key, ()):
            continue
        if name not in parameters:
            if takes_any:
                continue
            known = [p for p in parameters if p != "self"]
            guess = did_you_mean(str(name), known)
            raise ConfigError(
                f"{node._target_} has no argument {name!r}{'; ' + guess if guess else ''}",
                key=f"{key}.{name}",
                hint=f"it takes: {', '.join(known)}",
            )
        found, value = _value(node, str(name))
        wanted = hints.get(str(name), Any)
        if found and not accepts(wanted, value):
            raise ConfigError(f"{value!r} is no {_say(wanted)}", key=f"{key}.{name}", hint=f"{node._target_} takes {name}: {_say(wanted)}")


def _root(error: BaseException) -> str:
    while error.__cause__ is not None:
        error = error.__cause__
    return str(error).splitlines()[0] if str(error) else type(error).__name__


def _hints(target: Any) -> dict[str, Any]:
    try:
        return typing.get_type_hints(target.__init__ if inspect.isclass(target) else target)
    except Exception:  # annotations that exist for the type checker only
        return {}


def _value(node: DictConfig, name: str) -> tuple[bool, Any]:
    try:
        value = node[name]
    except OmegaConfBaseException:
        return False, None
    if isinstance(value, DictConfig | ListConfig):
        if any(True for _ in _targets(value, "")):
            return False, None
        try:
            return True, OmegaConf.to_container(value, resolve=True)
        except OmegaConfBaseException:
            return False, None
    return True, value


def accepts(annotation: Any, value: Any) -> bool:
    """Whether a value from YAML can stand where the annotation says.

    Only plain types are judged; for everything else the answer is yes.

    Args:
        annotation: A type, a union, a literal, a generic.
        value: None, bool, int, float, str, list or dict.

    >>> accepts(float | None, 1), accepts(int, "1"), accepts(int, True), accepts(list[int], [1, "a"])
    (True, False, False, False)
    """
    origin, args = typing.get_origin(annotation), typing.get_args(annotation)
    if origin in (typing.Union, types.UnionType):
        return any(accepts(part, value) for part in args)
    if origin is typing.Literal:
        return value in args
    if annotation is type(None) or annotation is None:
        return value is None
    if annotation is bool:
        return isinstance(value, bool)
    if annotation is int:
        return isinstance(value, int) and not isinstance(value, bool)
    if annotation is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    if annotation is str:
        return isinstance(value, str)
    container = origin or annotation
    if not inspect.isclass(container) or container.__module__ not in ("builtins", "collections.abc", "typing"):
        return True
    if issubclass(container, Mapping):
        return isinstance(value, dict)
    if container in (list, tuple, set, Sequence) or issubclass(container, list | tuple):
        inner = [a for a in args if a is not Ellipsis]
        of = inner[0] if len(set(inner)) == 1 else Any
        return isinstance(value, list | tuple) and all(accepts(of, one) for one in value)
    return True


def _say(annotation: Any) -> str:
    return annotation.__name__ if inspect.isclass(annotation) else str(annotation).replace("typing.", "")
