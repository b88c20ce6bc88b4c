"""What an annotation asks for: whether a value from YAML can stand there, and how to say it."""

from __future__ import annotations

import collections.abc
import datetime
import enum
import functools
import inspect
import os
import sys
import types
import typing
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

from assay.config.did_you_mean import named

_PLAIN: dict[Any, Any] = {
    bool: bool,
    int: int,
    float: (int, float),
    str: str,
    type(None): type(None),
    None: type(None),
}
_NO_FUNCTIONS = (bool, int, float, str, list, tuple, dict)
_SEQUENCES = (list, tuple, set, Sequence, Iterable, Collection)
_IN_WORDS = {bool: "true or false", int: "a whole number", float: "a number", str: "text", type(None): "null"}
_PLURALS = {bool: "true or false", int: "whole numbers", float: "numbers", str: "texts"}
_EXAMPLES = {bool: True, int: 1, float: 0.1, type(None): None}


@final
@dataclass(frozen=True)
class Made:
    """What a nested node with a `_target_` of its own will be."""

    kind: type | None = None

    def __repr__(self) -> str:
        return "a node of its own" if self.kind is None else f"a {self.kind.__name__}"


def accepts(annotation: Any, value: Any) -> bool:  # noqa: PLR0911 - one for each kind of annotation
    """Whether a value can stand where the annotation says; yes where that is not certain."""
    annotation = getattr(annotation, "__supertype__", annotation)
    origin, args = typing.get_origin(annotation), typing.get_args(annotation)
    if len(parts := _parts(annotation)) > 1:
        return any(accepts(part, value) for part in parts)
    container = origin or annotation
    if isinstance(value, Made):
        return _made_fits(container, value.kind)
    if origin is typing.Literal:
        return any(value == one and type(value) is type(one) for one in args)
    if annotation in _PLAIN:
        return isinstance(value, _PLAIN[annotation]) and (annotation is bool or not isinstance(value, bool))
    if container is collections.abc.Callable:
        return value is not None and not isinstance(value, _NO_FUNCTIONS)
    if not inspect.isclass(container) or isinstance(container, types.GenericAlias):
        return True
    if container in _SEQUENCES:
        return isinstance(value, list | tuple) and _all_fit(container, args, value)
    if _is_mapping(container):
        names, members = args if len(args) == 2 else (Any, Any)
        return isinstance(value, dict) and all(
            accepts(names, name) and accepts(members, one) for name, one in value.items()
        )
    if issubclass(container, enum.Enum):
        return any(value in (one.value, one.name) for one in container)
    if issubclass(container, os.PathLike):
        return isinstance(value, str)
    return not issubclass(container, (*_objects(), datetime.timedelta))


def _parts(annotation: Any) -> tuple[Any, ...]:
    """The members of a union; anything else is its own."""
    is_union = typing.get_origin(annotation) in (typing.Union, types.UnionType)
    return typing.get_args(annotation) if is_union else (annotation,)


def _literals(annotation: Any) -> list[Any]:
    literals = [part for part in _parts(annotation) if typing.get_origin(part) is typing.Literal]
    return [one for part in literals for one in typing.get_args(part)]


def _made_fits(container: Any, kind: type | None) -> bool:
    if kind is None or not issubclass(kind, (*_objects(), functools.partial)):
        return True
    if container in _PLAIN or container is typing.Literal:
        return False
    if not inspect.isclass(container) or not issubclass(container, _objects()):
        return True
    if kind is functools.partial:
        import torch

        # Neither can be made before there are parameters; a module annotates what it makes of the partial.
        return issubclass(container, (torch.optim.Optimizer, torch.optim.lr_scheduler.LRScheduler))
    # Of one family: a subclass may be what a factory gives.
    return issubclass(kind, container) or any(
        issubclass(kind, one) and issubclass(container, one) for one in _objects()
    )


def _objects() -> tuple[type, ...]:
    """Classes that no plain value can stand for, and of which none stands for another."""
    if "torch" not in sys.modules:
        return ()
    import torch
    from rich.console import Console

    parts = torch.optim.Optimizer, torch.optim.lr_scheduler.LRScheduler, torch.utils.data.Dataset
    return torch.nn.Module, torch.Tensor, *parts, Console


def _is_tensor(annotation: Any) -> bool:
    return "torch" in sys.modules and annotation is sys.modules["torch"].Tensor


def _is_mapping(container: Any) -> bool:
    if not inspect.isclass(container):
        return False
    return typing.is_typeddict(container) or (issubclass(container, Mapping) and issubclass(dict, container))


def _all_fit(container: type, args: tuple[Any, ...], value: Sequence[Any]) -> bool:
    if container is tuple and args and Ellipsis not in args:
        return len(value) == len(args) and all(map(accepts, args, value))
    return not args or all(accepts(args[0], one) for one in value)


def in_words(annotation: Any) -> str:  # noqa: PLR0911 - one for each kind of annotation
    """What an annotation asks for, as a person would say it."""
    annotation = getattr(annotation, "__supertype__", annotation)
    origin, args = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Literal:
        return _choices(args)
    if len(_parts(annotation)) > 1:
        return _union_in_words(annotation)
    if annotation in _IN_WORDS:
        return _IN_WORDS[annotation]
    container = origin or annotation
    if container is collections.abc.Callable:
        return "a function (a node with _target_ and _partial_: true)"
    if _is_mapping(container):
        return "a mapping" if len(args) != 2 else f"a mapping to {_plural(args[1])}"
    if container in _SEQUENCES:
        count = f"{len(args)} " if container is tuple and Ellipsis not in args else ""
        return f"a list of {count}{_plural(args[0]) if args else 'values'}"
    if inspect.isclass(container) and issubclass(container, enum.Enum):
        return _choices([one.value for one in container])
    name = str(getattr(container, "__name__", annotation))
    if inspect.isclass(container) and issubclass(container, _objects()):
        return f"a {name} (a node with a _target_)"
    return name


def _choices(values: Iterable[Any]) -> str:
    return named(dict.fromkeys(map(str, values))).replace(", ", " or ")


def _plural(annotation: Any) -> str:
    container = typing.get_origin(annotation) or annotation
    if container in _PLURALS:
        return _PLURALS[container]
    if _is_mapping(container):
        return "mappings"
    if container in _SEQUENCES:
        return "lists"
    if len(parts := _parts(annotation)) > 1:
        parts = tuple(part for part in parts if not _is_tensor(part))
        return _plural(parts[0]) if len(parts) == 1 else "values"
    return f"{container.__name__}s" if inspect.isclass(container) else "values"


def _union_in_words(annotation: Any) -> str:
    parts = list(_parts(annotation))
    if any(part in (bool, int, float, str) for part in parts):
        parts = [part for part in parts if not _is_tensor(part)]  # a number is what one would type
    if float in parts and int in parts:
        parts.remove(int)
    choices = _literals(annotation)
    words = [_choices(choices)] if choices else []
    words += [in_words(part) for part in parts if typing.get_origin(part) is not typing.Literal]
    return " or ".join(dict.fromkeys(words))


def choices_of(annotation: Any) -> list[str]:
    """The texts that an argument takes; none where it takes any, or no text.

    >>> choices_of(typing.Literal["min", "max"] | None)
    ['min', 'max']
    """
    return [one for one in _literals(annotation) if isinstance(one, str)]


def example_of(annotation: Any, default: Any) -> str:
    """A value that would be taken, as it would be typed: the default where it tells something."""
    if isinstance(default, bool | int | float | str | list | tuple):
        return as_typed(list(default) if isinstance(default, tuple) else default)
    if literals := _literals(annotation):
        return str(literals[-1])
    for part in _parts(annotation):
        if part in _EXAMPLES:
            return as_typed(_EXAMPLES[part])
        of = typing.get_args(part)[:1]
        if typing.get_origin(part) in _SEQUENCES and of in ((int,), (float,)):
            return as_typed([_EXAMPLES[of[0]]])
    return ""


def as_typed(value: Any) -> str:
    """As it would be typed on the command line."""
    if value is None or isinstance(value, bool):
        return str(value).lower().replace("none", "null")
    return str(value)
