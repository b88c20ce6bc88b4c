"""Do the arguments of every `_target_` fit its signature?"""

from __future__ import annotations

import collections.abc
import importlib
import inspect
import sys
import types
import typing
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from omegaconf import DictConfig, ListConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from assay.config.did_you_mean import did_you_mean, named
from assay.config.tree import walk
from assay.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator

_OF_HYDRA = {"_target_", "_args_", "_partial_", "_convert_", "_recursive_"}
_EXTRAS = {
    "scheduler": {"interval", "frequency", "monitor"},
    "trainer": {"compile", "channels_last", "matmul_precision"},
}
"""Keys that `assemble` takes off a node before it is built."""
_FOR_TYPE_CHECKERS = {
    **vars(collections.abc),
    **vars(typing),
    "Tensor": torch.Tensor,
    "nn": torch.nn,
    "torch": torch,
}
"""Names that a module may import for the type checker alone."""
_PLAIN: dict[Any, Any] = {
    bool: bool,
    int: int,
    float: (int, float),
    str: str,
    type(None): type(None),
    None: type(None),
    torch.Tensor: (),  # YAML has none
}
_SEQUENCES = (list, tuple, set, Sequence, Iterable, Collection)
_IN_WORDS = {bool: "true or false", int: "a whole number", float: "a number", str: "text", type(None): "null"}
_EXAMPLES = {bool: True, int: 1, float: 0.1, type(None): None}


def check_signatures(config: DictConfig) -> None:
    """Refuse arguments that no call would take.

    Args:
        config: A job; values that wait for the data (`${spec.…}`) are not looked at.

    Raises:
        ConfigError: A target cannot be imported, has no such argument, or wants another type.
    """
    for key, node in _targets(config):
        _check_node(key, node)


def _targets(config: DictConfig | ListConfig) -> Iterator[tuple[str, DictConfig]]:
    for entry in walk(config):
        if entry.is_container and isinstance(entry.node, DictConfig) and "_target_" in entry.node:
            yield entry.key, entry.node


def _check_node(key: str, node: DictConfig) -> None:
    target = _locate(key, str(node._target_))
    try:
        parameters = inspect.signature(target).parameters
    except (TypeError, ValueError):
        return  # built-ins without a signature
    takes_any = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
    known = [name for name, p in parameters.items() if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
    for name in map(str, node):
        if name in _OF_HYDRA or name in _EXTRAS.get(key, ()):
            continue
        if name not in known:
            if takes_any:
                continue
            guess = did_you_mean(name, known)
            raise ConfigError(
                f"{node._target_} has no argument {name!r}{'; ' + guess if guess else ''}",
                key=f"{key}.{name}",
                hint=f"it takes: {named(known, name)}" if known else "it takes no arguments",
            )
        found, value = _value(node, name)
        wanted = _hint(target, parameters[name])
        is_default = value is None and parameters[name].default is None  # whatever the annotation says
        if found and not is_default and not accepts(wanted, value):
            example = _example(wanted, parameters[name].default)
            raise ConfigError(
                f"{_yaml(value)} was given; {in_words(wanted)} was expected",
                key=f"{key}.{name}",
                hint=f"for example {key}.{name}={example}" if example else f"see {node._target_}",
            )


def example(config: DictConfig, key: str) -> str:
    """A value that an argument takes, ready to type; empty where the signature tells none.

    Args:
        config: A job.
        key: Full key of an argument, such as `optimizer.lr`.
    """
    parent, _, name = key.rpartition(".")
    node = OmegaConf.select(config, parent) if parent else None
    if not isinstance(node, DictConfig) or "_target_" not in node:
        return ""
    target = _locate(parent, str(node._target_))
    try:
        parameter = inspect.signature(target).parameters[name]
    except (TypeError, ValueError, KeyError):
        return ""
    value = _example(_hint(target, parameter), parameter.default)
    return f"for example {key}={value}" if value else ""


def _locate(key: str, path: str) -> Any:
    """The object of a dotted path, without the lines that Hydra logs when there is none."""
    parts = path.split(".")
    found: Any = None
    for index, part in enumerate(parts):
        if index and hasattr(found, part):
            found = getattr(found, part)
            continue
        name = ".".join(parts[: index + 1])
        try:
            if index and not inspect.ismodule(found):
                raise ModuleNotFoundError(name=name)
            found = importlib.import_module(name)
        except Exception as error:  # whatever importing somebody's module raises
            reason, hint = _why_not(error, name, found)
            raise ConfigError(f"{path!r}: {reason}", key=f"{key}._target_", hint=hint) from error
    return found


def _why_not(error: Exception, name: str, inside: Any) -> tuple[str, str]:
    if not (isinstance(error, ModuleNotFoundError) and error.name == name):
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        return f"cannot be imported: {reason}", "the module itself fails; --debug shows where"
    parent, _, part = name.rpartition(".")
    if not parent:
        return f"there is no module {part!r} here", "install it, or start assay in the folder that holds it"
    return f"{parent} has no {part!r}", did_you_mean(
        part, dir(inside)
    ) or f"see the documentation of {parent}"


def _hint(target: Any, parameter: inspect.Parameter) -> Any:
    """The annotation of one parameter; Any where it cannot be known."""
    annotation = parameter.annotation
    if annotation is parameter.empty:
        return Any
    function = inspect.unwrap(target.__init__ if inspect.isclass(target) else target)
    module = sys.modules.get(getattr(function, "__module__", ""))
    stand_in = types.SimpleNamespace(__annotations__={parameter.name: annotation})
    names = {**_FOR_TYPE_CHECKERS, **vars(module or types.SimpleNamespace())}
    try:
        return typing.get_type_hints(stand_in, globalns=names)[parameter.name]
    except Exception:  # a name that only the type checker knows
        return Any


def _value(node: DictConfig, name: str) -> tuple[bool, Any]:
    try:
        value = node[name]
    except OmegaConfBaseException:
        return False, None
    if isinstance(value, DictConfig | ListConfig):
        if "_target_" in value or any(True for _ in _targets(value)):
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
        return any(value == one and type(value) is type(one) for one in args)
    if annotation in _PLAIN:
        return isinstance(value, _PLAIN[annotation]) and (annotation is bool or not isinstance(value, bool))
    container = origin or annotation
    if _is_sequence(container):
        return isinstance(value, list | tuple) and _all_fit(container, args, value)
    return isinstance(value, dict) if _is_mapping(container) else True


def _is_sequence(container: Any) -> bool:
    return inspect.isclass(container) and container in _SEQUENCES


def _is_mapping(container: Any) -> bool:
    return inspect.isclass(container) and issubclass(container, Mapping) and issubclass(dict, container)


def _all_fit(container: type, args: tuple[Any, ...], value: Sequence[Any]) -> bool:
    if container is tuple and args and Ellipsis not in args:
        return len(value) == len(args) and all(map(accepts, args, value))
    return not args or all(accepts(args[0], one) for one in value)


def in_words(annotation: Any) -> str:
    """What an annotation asks for, as a person would say it.

    Args:
        annotation: As for `accepts`.

    >>> in_words(int | None), in_words(tuple[float, float]), in_words(typing.Literal["min", "max"])
    ('a whole number or null', 'a list of 2 numbers', 'min or max')
    """
    origin, args = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Literal:
        return named(dict.fromkeys(map(str, args))).replace(", ", " or ")
    if origin in (typing.Union, types.UnionType):
        parts = [part for part in args if part is not torch.Tensor]
        if float in parts and int in parts:
            parts.remove(int)
        choices = [
            one
            for part in parts
            for one in typing.get_args(part)
            if typing.get_origin(part) is typing.Literal
        ]
        others = [part for part in parts if typing.get_origin(part) is not typing.Literal]
        words = [in_words(typing.Literal[tuple(choices)])] if choices else []
        return " or ".join(dict.fromkeys(words + [in_words(part) for part in others]))
    if annotation in _IN_WORDS:
        return _IN_WORDS[annotation]
    container = origin or annotation
    if _is_mapping(container):
        return "a mapping"
    if _is_sequence(container):
        of = in_words(args[0]).removeprefix("a ") + "s" if args else "values"
        count = f"{len(args)} " if container is tuple and Ellipsis not in args else ""
        return f"a list of {count}{of}"
    return str(getattr(annotation, "__name__", annotation))


def _example(annotation: Any, default: Any) -> str:
    """A value that would be taken: the default where it tells something, else one of the right type."""
    if isinstance(default, bool | int | float | str | list | tuple):
        return _yaml(list(default) if isinstance(default, tuple) else default)
    union = typing.get_origin(annotation) in (typing.Union, types.UnionType)
    parts = typing.get_args(annotation) if union else (annotation,)
    literals = [part for part in parts if typing.get_origin(part) is typing.Literal]
    if literals:
        return str(typing.get_args(literals[-1])[-1])
    for part in parts:
        if part in _EXAMPLES:
            return _yaml(_EXAMPLES[part])
        of = typing.get_args(part)[:1]
        if _is_sequence(typing.get_origin(part)) and of in ((int,), (float,)):
            return _yaml([_EXAMPLES[of[0]]])
    return ""


def _yaml(value: Any) -> str:
    """As it would be typed."""
    if value is None or isinstance(value, bool):
        return str(value).lower().replace("none", "null")
    return str(value)
