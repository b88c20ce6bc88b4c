"""The interface of fine-tuning, and helpers to freeze parameters."""

from __future__ import annotations

import functools
import re
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

from assay.layer_depth import head_names, lies_in

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from torch import nn


class FineTuning(ABC):
    """Decides which of a model's parameters are trained, and when."""

    @abstractmethod
    def prepare(self, model: nn.Module) -> None:
        """Freeze parameters that are never trained, and add those that are trained instead."""

    def begin_epoch(self, model: nn.Module, epoch: int) -> None:
        """Freeze and unfreeze parameters for an epoch, as a pure function of it."""
        del model, epoch

    def trained(self, model: nn.Module, epoch: int) -> list[nn.Parameter]:
        """Return the parameters trained in an epoch, whatever the current epoch of the model."""
        return [parameter for parameter in model.parameters() if parameter.requires_grad]

    def last_change(self, model: nn.Module) -> int:
        """Return the epoch, from 0, in which the last parameters are unfrozen."""
        return 0


def freezable_names(model: nn.Module) -> list[str]:
    """Name the parameters that may be frozen: not the head, nor layers that weights did not fill."""
    parameters = dict(model.named_parameters(remove_duplicate=False))
    head = head_names(model)
    always_trained = (*head, *getattr(model, "new_layers", ()))
    matrices = [
        name for name, value in parameters.items() if lies_in(name, head) and value.ndim >= 2
    ]
    if not matrices:
        raise ValueError(
            f"{type(model).__name__} has no head that could be trained while the rest is frozen: it does not "
            "end in a linear layer or a convolution; choose another model, or finetune=none"
        )
    tied = {id(value) for name, value in parameters.items() if lies_in(name, always_trained)}
    names = [name for name, value in parameters.items() if id(value) not in tied]
    if not names:
        raise ValueError(
            f"{type(model).__name__} is nothing but a head ({', '.join(head)}), so there is nothing to "
            "freeze; use finetune=none"
        )
    norms = [f"{name}.weight" for name in norm_names(model)]
    return [
        *names,
        *(name for name in norms if name not in parameters and not lies_in(name, always_trained)),
    ]


def freeze(model: nn.Module, frozen: Collection[str]) -> None:
    """Freeze parameters, and hold the statistics of their norms."""
    for name, parameter in model.named_parameters():
        if name in frozen:
            parameter.requires_grad_(False)
    hold_statistics(model, frozen)


def match_names(patterns: Iterable[str], names: Sequence[str], key: str) -> set[str]:
    """Return the names that match any of the regular expressions."""
    matching: set[str] = set()
    for index, pattern in enumerate(patterns):
        try:
            matches = {name for name in names if re.search(pattern, name)}
        except (re.error, TypeError) as error:
            raise ValueError(
                f"{key}[{index}]={pattern!r} is not a regular expression ({error}); for example '\\.bias$'"
            ) from error
        if not matches:
            close = ", ".join(names[:3])
            raise ValueError(
                f"{key}[{index}]={pattern!r} matches no parameter of this model, as {close} are"
            )
        matching |= matches
    return matching


class _Held:
    """Mixin for the class of a norm whose statistics can be held."""

    held: bool

    def train(self, mode: bool = True) -> Any:
        """Stay in eval mode while the statistics are held."""
        return super().train(mode and not self.held)  # type: ignore[misc]  # of the norm's own class


@functools.cache
def _held_class(kind: Any) -> Any:
    return type(kind.__name__, (_Held, kind), {"__module__": kind.__module__})


def norm_names(model: nn.Module) -> list[str]:
    """Name the modules with running statistics, such as batch norms."""
    return [
        name
        for name, module in model.named_modules()
        if getattr(module, "running_mean", None) is not None
    ]


def hold_statistics(model: nn.Module, frozen: Collection[str]) -> None:
    """Keep norms with a frozen weight in eval mode; the others follow the model."""
    for name in norm_names(model):
        norm: Any = model.get_submodule(name)
        held = f"{name}.weight" in frozen
        if held and not isinstance(norm, _Held):
            kind: Any = type(norm)
            norm.__class__ = _held_class(kind)
        if isinstance(norm, _Held):
            norm.held = held
            norm.train(model.training)
