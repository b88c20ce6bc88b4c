"""Norms whose running statistics stay as they are, whatever mode the model is put into."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Collection

    from torch import nn


class _Held:
    """Mixed into the class of a norm that may keep its statistics."""

    held: bool

    def train(self, mode: bool = True) -> Any:
        """Stay in eval mode while the statistics are held."""
        return super().train(mode and not self.held)  # type: ignore[misc]  # of the norm's own class


@functools.cache
def _holding(kind: Any) -> Any:
    return type(kind.__name__, (_Held, kind), {"__module__": kind.__module__})


def norm_names(model: nn.Module) -> list[str]:
    """Names of the modules that keep running statistics, such as batch norms."""
    return [
        name for name, module in model.named_modules() if getattr(module, "running_mean", None) is not None
    ]


def hold_statistics(model: nn.Module, frozen: Collection[str]) -> None:
    """Keep norms whose weight is frozen in eval mode; let the others follow the model.

    A norm in eval mode normalises by its running mean and variance and leaves them alone. `model.train()`
    does not change that.

    Args:
        model: Changed in place.
        frozen: Names of parameters; `NAME.weight` stands for a norm without any, too.
    """
    for name in norm_names(model):
        norm: Any = model.get_submodule(name)
        held = f"{name}.weight" in frozen
        if held and not isinstance(norm, _Held):
            kind: Any = type(norm)
            norm.__class__ = _holding(kind)
        if isinstance(norm, _Held):
            norm.held = held
            norm.train(model.training)
