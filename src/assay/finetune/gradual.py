from __future__ import annotations

from typing import TYPE_CHECKING, final

from typing_extensions import override

from assay.errors import check_numbers
from assay.finetune.interface import FineTuning, freezable_names, hold_statistics
from assay.layer_depth import distances_from_head

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import nn


@final
class Gradual(FineTuning):
    """Trains the head first, then layer by layer below it (Howard and Ruder 2018, ULMFiT, section 3.3).

    The trained parameters are a pure function of the epoch. The optimizer has all parameters from the start,
    so that a resumed run has the same groups; a parameter that is still frozen has no gradient, so that
    torch's optimizers neither change it nor create a state for it. Batch norms of frozen layers stay in eval
    mode.

    Args:
        every_n_epochs: Epochs from one layer to the next; `assay.layer_depth` defines layers.

    Raises:
        ValueError: `every_n_epochs` is below 1.
    """

    def __init__(self, every_n_epochs: int = 1) -> None:
        check_numbers("[1, inf)", every_n_epochs=every_n_epochs)
        self._every = every_n_epochs
        self._first_epoch: dict[str, int] = {}
        """Epoch from which each initially frozen parameter is trained."""

    @override
    def prepare(self, model: nn.Module) -> None:
        """Compute the first epoch of each parameter."""
        distances = distances_from_head(model)
        of_module = {name.rpartition(".")[0]: distance for name, distance in distances.items()}
        for name in freezable_names(model):
            self._first_epoch[name] = self._every * _distance(name, distances, of_module)

    @override
    def begin_epoch(self, model: nn.Module, epoch: int) -> None:
        frozen = {name for name, first in self._first_epoch.items() if first > epoch}
        for name, parameter in model.named_parameters():
            if name in self._first_epoch:
                parameter.requires_grad_(name not in frozen)
        hold_statistics(model, frozen)

    @override
    def trained(self, model: nn.Module, epoch: int) -> list[nn.Parameter]:
        first = self._first_epoch
        return [
            parameter
            for name, parameter in model.named_parameters()
            if (first[name] <= epoch if name in first else parameter.requires_grad)
        ]

    @override
    def last_change(self, model: nn.Module) -> int:
        del model
        return max(self._first_epoch.values(), default=0)


def _distance(name: str, distances: Mapping[str, int], of_module: Mapping[str, int]) -> int:
    """Return the distance of a parameter, or of a norm without parameters, by its neighbours."""
    place = name
    while place not in distances and place not in of_module and place:
        place = place.rpartition(".")[0]
        inside = [
            distance for module, distance in of_module.items() if module.startswith(f"{place}.")
        ]
        if inside:
            return max(inside)
    return distances.get(place, of_module.get(place, 1))
