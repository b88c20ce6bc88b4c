from __future__ import annotations

from typing import TYPE_CHECKING, final

from typing_extensions import override

from assay.finetune.interface import FineTuning, freezable_names, freeze, match_names

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import nn


@final
class Freeze(FineTuning):
    """Freezes parameters by their names.

    A frozen parameter has `requires_grad=False`: the optimizer does not receive it, so it has no state and
    no weight decay. A batch norm whose weight is frozen stays in eval mode and keeps its running statistics.
    The head, and layers that weights from a file did not fill, are never frozen.

    Args:
        frozen: Regular expressions, searched in the names of parameters: those to freeze; `.` is everything.
        trained: Regular expressions of parameters that are trained nevertheless.

    Raises:
        ValueError: In `prepare`, if an expression matches nothing, or there is nothing to freeze.
    """

    def __init__(self, frozen: Sequence[str] = (), trained: Sequence[str] = ()) -> None:
        self._frozen = tuple(frozen)
        self._trained = tuple(trained)

    @override
    def prepare(self, model: nn.Module) -> None:
        if self._frozen:
            names = freezable_names(model)
        else:
            names = [name for name, _ in model.named_parameters()]
        trained = match_names(self._trained, names, "finetune.trained")
        frozen = match_names(self._frozen, names, "finetune.frozen")
        if self._frozen:
            freeze(model, frozen - trained)
