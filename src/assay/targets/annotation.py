"""What an annotation asks for: whether a value from YAML can stand there, and how to say it."""

from __future__ import annotations

import collections.abc
import datetime
import functools
import inspect
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
_SEQUENCES = (list, tuple, set, Sequence, Iterable, Collection)
_MAPPINGS = (dict, Mapping)
_IN_WORDS = {bool: "true or false", int: "a whole number", float: "a number", str: "text", type(None): "null"}
_PLURALS = {int: "whole numbers", float: "numbers", str: "texts"}
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
    if len(parts := _parts(annotation)) > 1:
        return any(accepts(part, value) for part in parts)
    origin, args = typing.get_origin(annotation), typing.get_args(annotation)
    container = origin or annotation
    if isinstance(value, Made):
        return _made_fits(container, value.kind)
    if origin is typing.Literal:
        return any(value == one and type(value) is type(one) for one in args)
    if annotation in _PLAIN:
        return isinstance(value, _PLAIN[annotation]) and (annotation is bool or not isinstance(value, bool))
    if container is collections.abc.Callable:
        return value is not None and not isinstance(value, (bool, int, float, str, list, tuple, dict))
    if container in _MAPPINGS:
        members = args[1] if len(args) == 2 else Any
        return isinstance(value, dict) and all(accepts(members, one) for one in value.values())
    if container in _SEQUENCES:
        if not isinstance(value, list | tuple):
            return False
        if container is tuple and args and Ellipsis not in args:
            return len(value) == len(args) and all(map(accepts, args, value))
        return not args or all(accepts(args[0], one) for one in value)
    return not (_is_class(container) and issubclass(container, (*_objects(), datetime.timedelta)))


def _parts(annotation: Any) -> tuple[Any, ...]:
    """The members of a union; anything else is its own."""
    is_union = typing.get_origin(annotation) in (typing.Union, types.UnionType)
    return typing.get_args(annotation) if is_union else (annotation,)


def _literals(annotation: Any) -> list[Any]:
    literals = [part for part in _parts(annotation) if typing.get_origin(part) is typing.Literal]
    return [one for part in literals for one in typing.get_args(part)]


def _is_class(container: Any) -> bool:
    return inspect.isclass(container) and not isinstance(container, types.GenericAlias)


def _made_fits(container: Any, kind: type | None) -> bool:
    if kind is None or not issubclass(kind, (*_objects(), functools.partial)):
        return True
    if container in _PLAIN or container is typing.Literal:
        return False
    if not _is_class(container) or not issubclass(container, _objects()):
        return True
    if kind is functools.partial:
        import torch

        # Neither can be made before there are parameters; a module annotates what it makes of the partial.
        return issubclass(container, (torch.optim.Optimizer, torch.optim.lr_scheduler.LRScheduler))
    # Of one family: a subclass may be what a factory gives.
    return any(issubclass(kind, one) and issubclass(container, one) for one in _objects())


def _objects() -> tuple[type, ...]:
    """Classes that no plain value can stand for, and of which none stands for another."""
    if "torch" not in sys.modules:
        return ()
    import torch
    from rich.console import Console

    parts = torch.optim.Optimizer, torch.optim.lr_scheduler.LRScheduler, torch.utils.data.Dataset
    return torch.nn.Module, torch.Tensor, *parts, Console


def in_words(annotation: Any) -> str:
    """What an annotation asks for, as a person would say it."""
    parts = list(_parts(annotation))
    if float in parts or int in parts:  # a number is what one would type
        others = [part for part in parts if getattr(part, "__name__", "") != "Tensor"]
        parts = [part for part in others if part is not int or float not in parts]
    if choices := _literals(annotation):
        parts = [part for part in parts if typing.get_origin(part) is not typing.Literal]
    words = [named(dict.fromkeys(map(str, choices))).replace(", ", " or ")] if choices else []
    return " or ".join(dict.fromkeys([*words, *map(_part_in_words, parts)]))


def _part_in_words(part: Any) -> str:
    if part in _IN_WORDS:
        return _IN_WORDS[part]
    container, args = typing.get_origin(part) or part, typing.get_args(part)
    if container is collections.abc.Callable:
        return "a function (a node with _target_ and _partial_: true)"
    if container in _MAPPINGS:
        return "a mapping"
    if container in _SEQUENCES:
        count = f"{len(args)} " if container is tuple and args and Ellipsis not in args else ""
        return f"a list of {count}{_plural(args[0]) if args else 'values'}"
    name = str(getattr(container, "__name__", part))
    is_object = _is_class(container) and issubclass(container, _objects())
    return f"a {name} (a node with a _target_)" if is_object else name


def _plural(annotation: Any) -> str:
    return next((_PLURALS[part] for part in _parts(annotation) if part in _PLURALS), "values")


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
    examples = [_EXAMPLES[part] for part in _parts(annotation) if part in _EXAMPLES]
    return as_typed(examples[0]) if examples else ""


def as_typed(value: Any) -> str:
    """As it would be typed on the command line."""
    if value is None or isinstance(value, bool):
        return str(value).lower().replace("none", "null")
    return str(value)
