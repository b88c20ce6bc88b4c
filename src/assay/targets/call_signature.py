"""Signatures of classes and functions, and how to show them in one line."""

from __future__ import annotations

import functools
import inspect
from dataclasses import dataclass
from textwrap import shorten
from typing import TYPE_CHECKING, Any, final

import torch

from assay.targets.annotation import resolve_annotation

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


_BY_POSITION = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
_MANY = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
_FOR_TYPE_CHECKERS = {"Tensor": torch.Tensor, "nn": torch.nn, "torch": torch}
"""Names that a module may import for the type checker alone."""
_WIDTH = 120


@final
@dataclass(frozen=True)
class Call:
    """The arguments of a class or function."""

    name: str
    parameters: Mapping[str, inspect.Parameter]
    takes_any: bool
    many: Any

    @property
    def by_position(self) -> list[str]:
        """Names of those that an unnamed value can stand for, in their order."""
        return [
            name for name, parameter in self.parameters.items() if parameter.kind in _BY_POSITION
        ]

    @property
    def required(self) -> list[str]:
        """Names of those without a default."""
        empty = inspect.Parameter.empty
        return [name for name, parameter in self.parameters.items() if parameter.default is empty]

    def in_short(self) -> str:
        """The names of its arguments in a line."""
        required = self.required
        names = [name if name in required else f"{name}=…" for name in self.parameters]
        return shorten(f"{self.name}({', '.join(names)})", _WIDTH, placeholder=" …)")


@functools.cache
def call_of(target: Callable[..., Any]) -> Call | None:
    """What a class or function takes; None for built-ins, which do not tell."""
    try:
        signature = inspect.signature(target)
    except (TypeError, ValueError):
        return None
    params = list(signature.parameters.values())
    if inspect.isclass(target) and target.__init__ is torch.nn.Module.__init__:
        params = []  # its `*args, **kwargs` are there to be refused
    named = {
        item.name: _resolve_parameter(target, item) for item in params if item.kind not in _MANY
    }
    takes_any = any(item.kind is item.VAR_KEYWORD for item in params)
    several = [
        _resolve_parameter(target, item) for item in params if item.kind is item.VAR_POSITIONAL
    ]
    many = None
    if several:
        many = several[0].annotation
    if target is torch.nn.Sequential:
        many = torch.nn.Module  # its annotation stands in an overload
    return Call(str(getattr(target, "__name__", target)), named, takes_any, many)


def _resolve_parameter(target: Any, parameter: inspect.Parameter) -> inspect.Parameter:
    annotation = parameter.annotation
    is_known = annotation is not parameter.empty
    resolved = Any
    if is_known:
        resolved = resolve_annotation(target, parameter.name, annotation, _FOR_TYPE_CHECKERS)
    return parameter.replace(annotation=resolved)
