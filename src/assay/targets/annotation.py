"""Annotations: whether a value from YAML fits one, and how to show one."""

from __future__ import annotations

import collections.abc
import functools
import inspect
import re
import sys
import types
import typing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, final

import msgspec

from assay.config.did_you_mean import did_you_mean
from assay.config.tree import split_key
from assay.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

SEQUENCES = (
    list,
    tuple,
    set,
    collections.abc.Sequence,
    collections.abc.Iterable,
    collections.abc.Collection,
)
MAPPINGS = (dict, collections.abc.Mapping)
_EXAMPLES = {bool: True, int: 1, float: 0.1, type(None): None}
_ASKED = re.compile(r"^[Ee]xpected |`|, got .*| - at .*")
_MODULES = re.compile(r"\b(?:\w+\.)+(?=\w)")


@final
@dataclass(frozen=True)
class NestedTarget:
    """The object that a nested node with a `_target_` will become."""

    kind: type | None = None

    def __repr__(self) -> str:
        if self.kind is None:
            return "a nested node"
        return f"a {self.kind.__name__}"


def resolve_annotation(
    function: Any, name: str, annotation: Any, names: Mapping[str, Any]
) -> Any:
    """The annotation of one parameter; Any where it cannot be known."""
    if inspect.isclass(function):
        function = function.__init__
    function = inspect.unwrap(function)
    stand_in = types.SimpleNamespace(__annotations__={name: annotation})
    # What a module imports for the type checker alone is not among its names.
    namespace = {
        **vars(collections.abc),
        **vars(typing),
        **names,
        **getattr(function, "__globals__", {}),
    }
    try:
        hint = typing.get_type_hints(stand_in, globalns=namespace, include_extras=True)[name]
        # Units and the like, which other libraries read, say nothing here.
        if "msgspec.Meta(" in repr(hint):
            return hint
        return typing.get_type_hints(stand_in, namespace)[name]
    except Exception:  # a name that only the type checker knows
        return Any


def accepts(annotation: Any, value: Any) -> bool:  # noqa: PLR0911 - one for each kind of annotation
    """Whether a value can stand where the annotation says; yes where that is not certain."""
    if len(parts := members_of(annotation)) > 1:
        return any(accepts(part, value) for part in parts)
    origin = typing.get_origin(annotation)
    args = typing.get_args(annotation)
    if isinstance(value, NestedTarget):
        if value.kind is None or not is_object(value.kind, functools.partial):
            return True
    elif origin in MAPPINGS:
        return isinstance(value, dict) and all(accepts(args[1], item) for item in value.values())
    elif origin is tuple and args[1:] != (...,):
        fits = isinstance(value, list | tuple) and len(value) == len(args)
        return fits and all(map(accepts, args, value))
    elif origin in SEQUENCES:
        return isinstance(value, list | tuple) and all(accepts(args[0], item) for item in value)
    try:
        msgspec.convert(value, annotation, dec_hook=_check_object)
    except msgspec.ValidationError:
        return False
    except (TypeError, NotImplementedError):  # an annotation that msgspec does not judge
        return True
    return True


def _check_object(annotation: Any, value: Any) -> Any:
    """Judge a value where the annotation names a class that msgspec does not know."""
    kind = typing.get_origin(annotation) or annotation
    if kind is collections.abc.Callable:
        fits = not isinstance(value, bool | int | float | str | list | tuple | dict | None)
    elif not is_object(kind):
        fits = True
    elif not isinstance(value, NestedTarget) or value.kind is None:
        fits = isinstance(value, NestedTarget)
    elif value.kind is functools.partial:
        import torch

        # Neither can be made before there are parameters; a module annotates what it makes of the partial.
        fits = issubclass(kind, (torch.optim.Optimizer, torch.optim.lr_scheduler.LRScheduler))
    else:  # of one family: a subclass may be what a factory gives
        fits = any(issubclass(value.kind, base) and issubclass(kind, base) for base in _objects())
    if fits:
        raise NotImplementedError
    raise msgspec.ValidationError


def is_object(kind: Any, *classes: type) -> bool:
    """Whether a kind is a class that no plain value can stand for."""
    is_class = inspect.isclass(kind) and not isinstance(kind, types.GenericAlias)
    return is_class and issubclass(kind, (*_objects(), *classes))


def _objects() -> tuple[type, ...]:
    """Classes that no plain value can stand for, and of which none stands for another."""
    if "torch" not in sys.modules:
        return ()
    import torch
    from rich.console import Console

    parts = torch.optim.Optimizer, torch.optim.lr_scheduler.LRScheduler, torch.utils.data.Dataset
    return torch.nn.Module, torch.Tensor, *parts, Console


def members_of(annotation: Any) -> tuple[Any, ...]:
    """The members of a union; anything else is its own."""
    annotation = getattr(annotation, "__supertype__", annotation)
    is_union = typing.get_origin(annotation) in (typing.Union, types.UnionType)
    if is_union:
        return typing.get_args(annotation)
    return (annotation,)


def _literals(annotation: Any) -> list[Any]:
    literals = [
        part for part in members_of(annotation) if typing.get_origin(part) is typing.Literal
    ]
    return [value for part in literals for value in typing.get_args(part)]


def format_annotation(annotation: Any) -> str:
    """What an annotation asks for, as Python writes it, without the modules of its names.

    >>> print(format_annotation(collections.abc.Sequence[int] | None))
    Sequence[int] | null
    >>> print(format_annotation(typing.Literal["min", "max"]))
    'min' | 'max'
    """
    members = [
        part for part in members_of(annotation) if typing.get_origin(part) is not typing.Literal
    ]
    text = " | ".join(
        [*map(repr, _literals(annotation)), *map(inspect.formatannotation, members)]
    )
    return _MODULES.sub("", text).replace("NoneType", "null")


def choices_of(annotation: Any) -> list[str]:
    """The texts that an argument takes; none where it takes any, or no text.

    >>> choices_of(typing.Literal["min", "max"] | None)
    ['min', 'max']
    """
    return [literal for literal in _literals(annotation) if isinstance(literal, str)]


def example_of(annotation: Any, default: Any) -> str:
    """A value that would be taken, as it would be typed: the default where it tells something."""
    if isinstance(default, bool | int | float | str | list | tuple):
        if isinstance(default, tuple):
            default = list(default)
        return as_typed(default)
    if literals := _literals(annotation):
        return str(literals[-1])
    for part in members_of(annotation):
        limits = next(iter(getattr(part, "__metadata__", ())), msgspec.Meta())
        if limits.ge is None and limits.gt is None:
            bound = limits.le
        else:
            bound = limits.ge
        kind = getattr(part, "__origin__", part)
        if bound is not None or kind in _EXAMPLES:
            return as_typed(_EXAMPLES[kind] if bound is None else bound)
    return ""


def as_typed(value: Any) -> str:
    """As it would be typed on the command line."""
    if value is None or isinstance(value, bool):
        return str(value).lower().replace("none", "null")
    return str(value)


def as_typed_key(key: str) -> str:
    """A key as an override names it: `model._args_.1.p` for `model._args_[1].p`."""
    return ".".join(split_key(key))


def check_value(key: str, value: Any, kind: Any) -> None:
    """Refuse a value that is not of a kind, as msgspec judges it."""
    try:
        msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        choices = []
        if isinstance(value, str):
            choices = choices_of(kind)
        members = [
            part for part in members_of(kind) if typing.get_origin(part) is not typing.Literal
        ]
        words = [
            *choices,
            *(format_annotation(getattr(part, "__origin__", part)) for part in members),
        ]
        if choices:
            expected = f"one of {', '.join(words)}"
        else:
            expected = expected_type(error)
        guess = ""
        if choices:
            guess = did_you_mean(value, choices, "; ")
        example = example_of(kind, None)
        hint = ""
        if example:
            hint = f"for example {as_typed_key(key)}={example}"
        raise ConfigError(
            f"expected {expected}, got {as_typed(value)}{guess}", key=key, hint=hint
        ) from error


def expected_type(error: msgspec.ValidationError) -> str:
    """What msgspec expected, without what it got and where."""
    return _ASKED.sub("", str(error)).replace("object", "dict").replace("array", "list")
