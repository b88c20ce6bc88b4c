"""How deep a parameter lies: its layer's distance from the head."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from torch import nn

if TYPE_CHECKING:
    from collections.abc import Iterator

_NUMBERED = re.compile(r"\d[a-z]?$")
"""The end of a layer's name: `layer3`, `blocks.0`, and Inception's `Mixed_5b`."""


def head_names(model: nn.Module) -> tuple[str, ...]:
    """Names of the modules that make up a model's head."""
    stated = getattr(model, "head_names", None)
    if stated:
        return tuple(stated)
    last = [name for name, _ in model.named_parameters()][-1:]
    return tuple(name.rpartition(".")[0] for name in last)


def lies_in(name: str, modules: tuple[str, ...]) -> bool:
    """Whether a parameter belongs to one of some modules."""
    return any(name.startswith(f"{module}.") or not module for module in modules)


def distances_from_head(model: nn.Module) -> dict[str, int]:
    """Number each parameter's layer by its distance from the head, the head itself being 0."""
    parameters = dict(model.named_parameters())
    head = head_names(model)
    keys = {name: _layer(name) for name in parameters if not lies_in(name, head)}
    with_matrix = {
        key for name, key in keys.items() if key is not None and parameters[name].ndim >= 2
    }
    order: dict[str | None, int] = {}
    layers: dict[str, int] = {}
    current = None
    for name, key in keys.items():
        if key in with_matrix:
            current = key
        layers[name] = order.setdefault(current, len(order))
    return {name: len(order) - layers[name] if name in layers else 0 for name in parameters}


def _layer(name: str) -> str | None:
    """Cut the name of a parameter's module after the first part that ends in a number."""
    parts = name.partition(".parametrizations.")[0].split(".")
    if ".parametrizations." not in name:
        parts = parts[:-1]
    for length, part in enumerate(parts, start=1):
        if _NUMBERED.search(part):
            return ".".join(parts[:length])
    return None


def repeated_blocks(model: nn.Module) -> Iterator[nn.Module]:
    """The parts of which a list or sequence holds several of one class, the outermost ones."""
    parts = list(model.children())
    if isinstance(model, nn.ModuleList | nn.Sequential):
        kinds = [type(part) for part in parts]
    else:
        kinds = []
    for part in parts:
        if kinds.count(type(part)) > 1 and next(part.parameters(), None) is not None:
            yield part
        else:
            yield from repeated_blocks(part)
