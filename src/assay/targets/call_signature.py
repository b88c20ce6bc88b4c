"""Signatures of classes and functions, and how to show them in one line."""

from __future__ import annotations

import functools
import inspect
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, final

import torch
from omegaconf import DictConfig, OmegaConf

from assay.targets.annotation import as_typed, example_of, resolve_annotation
from assay.targets.resolve import resolve_class

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping


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

    def in_short(self, about: Collection[str] = ()) -> str:
        """The signature in a line, without what is of no interest."""
        shown = {*self.required, *about} & {*self.parameters}
        for name in self.parameters:
            if len(self._line({*shown, name})) > _WIDTH:
                break
            shown.add(name)
        return self._line(shown)

    def _line(self, shown: Collection[str]) -> str:
        parts: list[str] = []
        for name, parameter in self.parameters.items():
            text = "…"
            if name in shown:
                text = _argument(parameter)
            if text != "…" or parts[-1:] != ["…"]:
                parts.append(text)
        return f"{self.name}({', '.join(parts)})"


def _argument(parameter: inspect.Parameter) -> str:
    if parameter.default is inspect.Parameter.empty:
        return parameter.name
    default = parameter.default
    plain = default is None or isinstance(default, bool | int | float | str | tuple | list)
    if plain and len(repr(default)) < 30:
        return f"{parameter.name}={default!r}"
    return f"{parameter.name}=…"


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


def example_hint(config: DictConfig, key: str) -> str:
    """Another value that an argument takes, ready to type; empty where the signature tells none."""
    parent, _, name = key.rpartition(".")
    node = None
    if parent:
        node = OmegaConf.select(config, parent)
    if not isinstance(node, DictConfig) or "_target_" not in node:
        return ""
    call = call_of(resolve_class(parent, node))
    parameter = None
    if call is not None:
        parameter = call.parameters.get(name)
    value = ""
    if parameter is not None:
        value = example_of(parameter.annotation, parameter.default)
    refused = OmegaConf.select(config, key, throw_on_resolution_failure=False)
    if OmegaConf.is_config(refused):
        refused = OmegaConf.to_container(refused)
    if value not in {"", as_typed(refused)}:
        return f"for example {key}={value}"
    return ""
