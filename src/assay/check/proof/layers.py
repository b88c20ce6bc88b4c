"""Which layer was at work when something went wrong."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, final

import torch
from omegaconf import DictConfig, ListConfig

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import nn

_MOST_TEXT = 60


@final
@dataclass
class Layers:
    """The modules that are inside their forward, outermost first.

    Attributes:
        running: Name, module and shapes of the inputs of each.
    """

    running: list[tuple[str, nn.Module, str]] = field(default_factory=list)

    def where(self) -> str:
        """The innermost one in words: its name, what it is, and its input's shape; or nothing."""
        if not self.running:
            return ""
        name, module, shapes = self.running[-1]
        weight = getattr(module, "weight", None)
        what = type(module).__name__
        described = f"{what}({module.extra_repr()})"
        if module.extra_repr() and len(described) <= _MOST_TEXT:
            what = described
        elif isinstance(weight, torch.Tensor):
            what += f" with a weight of {list(weight.shape)}"
        layer = f"layer {name!r}, {what}," if name else f"{what}"
        return f"{layer} was given {shapes}"

    def key(self, node: Any, key: str) -> str:
        """Full config key of the node that the innermost layer was built from, as far as names tell."""
        name = self.running[-1][0] if self.running else ""
        for part in name.split(".") if name else ():
            arguments = node.get("_args_") if isinstance(node, DictConfig) else None
            if part.isdigit() and isinstance(arguments, ListConfig) and int(part) < len(arguments):
                node, key = arguments[int(part)], f"{key}._args_[{part}]"
            elif isinstance(node, DictConfig) and isinstance(node.get(part), DictConfig):
                node, key = node[part], f"{key}.{part}"
            else:
                break
        return key


@contextmanager
def watched(model: nn.Module) -> Iterator[Layers]:
    """Follow the forward of a model and of all that is in it.

    Args:
        model: Hooks are put on its modules and taken off at the end.
    """
    layers = Layers()
    handles = []

    def enter(name: str) -> Any:
        def hook(module: nn.Module, inputs: Any, named: Any) -> None:
            layers.running.append((name, module, _shapes([*inputs, *named.values()])))

        return hook

    def leave(*_: Any) -> None:
        layers.running.pop()

    for name, module in model.named_modules():
        handles.append(module.register_forward_pre_hook(enter(name), with_kwargs=True, prepend=True))
        handles.append(module.register_forward_hook(leave))
    try:
        yield layers
    finally:
        for handle in handles:
            handle.remove()


def _shapes(values: list[Any]) -> str:
    tensors = [value for value in values if isinstance(value, torch.Tensor)]
    kinds = {tensor.dtype for tensor in tensors} - {torch.float32}
    named = [f"{list(tensor.shape)}{_kind(tensor) if kinds else ''}" for tensor in tensors]
    return " and ".join(named) or "no tensor"


def _kind(tensor: torch.Tensor) -> str:
    return f" {str(tensor.dtype).removeprefix('torch.')}"
