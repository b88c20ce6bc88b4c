from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self, final

import torch
from torch import Tensor, nn

from assay.errors import check_numbers

if TYPE_CHECKING:
    from collections.abc import Sequence

    Scale = tuple[Sequence[float], Sequence[float]]


@final
class Teacher:
    """Mixes the targets with the predictions of another model (Hinton et al. 2015, https://arxiv.org/abs/1503.02531).

    The targets become `(1 - hard_weight) * softmax(teacher(inputs) / temperature) + hard_weight *
    one_hot(targets)`. Temperature acts on the teacher alone: any loss that takes soft targets trains the
    student.

    The teacher is frozen and in eval mode. It is not part of the student: this is a plain object, so the
    module that holds it neither trains nor saves the teacher's parameters. It moves to the inputs' device
    when first used and runs under the caller's autocast.

    Args:
        model: Inputs `[B, ...]` -> logits `[B, C]`. A model from `assay.load` receives them normalised by
            the statistics of its run, any other unchanged.
        temperature: What the teacher's logits are divided by; above 1 softens them.
        hard_weight: Share of the true targets, from 0 to 1.
        mean: Of the normalisation of the inputs, one value per channel or feature; empty: none.
        std: As `mean`.

    Raises:
        ValueError: If the temperature is not positive or `hard_weight` is not a share.
    """

    def __init__(
        self,
        model: nn.Module,
        temperature: float = 2.0,
        hard_weight: float = 0.1,
        *,
        mean: Sequence[float] = (),
        std: Sequence[float] = (),
    ) -> None:
        check_numbers("(0, inf)", temperature=temperature)
        check_numbers("[0, 1]", hard_weight=hard_weight)
        self._rescale: tuple[Tensor, Tensor] | None = None
        network = getattr(model, "model", None)
        preprocess = getattr(model, "preprocess", None)
        # as assay.load returns it
        if isinstance(network, nn.Module) and isinstance(preprocess, nn.Module):
            normalize: Any = preprocess.normalize
            self._rescale = _make_rescaling((mean, std), (normalize.mean, normalize.std))
            model = network
        self.model = model.eval().requires_grad_(False)
        self.temperature = temperature
        self.hard_weight = hard_weight
        self._device: torch.device | None = None

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        # Weight averaging copies the whole module; a frozen teacher needs no second set of weights.
        return self

    @torch.no_grad()
    def __call__(self, inputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """Replace the targets; return the inputs unchanged."""
        if self._device != inputs.device:
            self.model.to(inputs.device)
            self._device = inputs.device
        rescaled = inputs
        if self._rescale is not None:
            shape = [1, -1] + [1] * (inputs.ndim - 2)
            factor, shift = (value.to(inputs).view(shape) for value in self._rescale)
            rescaled = inputs * factor + shift
        logits: Tensor = self.model(rescaled)
        soft = torch.softmax(logits.float() / self.temperature, dim=1).mul_(
            1.0 - self.hard_weight
        )
        if targets.ndim == 1:
            share = soft.new_full((), self.hard_weight).expand(len(targets), 1)
            return inputs, soft.scatter_add_(1, targets.unsqueeze(1), share)
        return inputs, soft.add_(targets, alpha=self.hard_weight)


def _make_rescaling(source: Scale, target: Scale) -> tuple[Tensor, Tensor] | None:
    """Return factor and shift between two normalisations of inputs; None if they are equal."""
    if tuple(map(tuple, source)) == tuple(map(tuple, target)):
        return None
    mean, std, other_mean, other_std = (
        torch.tensor([*values] or [neutral], dtype=torch.float64)
        for values, neutral in zip((*source, *target), (0.0, 1.0, 0.0, 1.0), strict=True)
    )
    std = std.where(std != 0, 1.0)
    return (std / other_std).float(), ((mean - other_mean) / other_std).float()
