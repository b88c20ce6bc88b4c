"""Scaling of real-valued targets: the loss sees standardised ones, all else the target's own unit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, final

import torch

from assay.task.task_of import task_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from torch import Tensor


@final
class TargetScale:
    """`(targets - mean) / std` for the loss, and the way back for outputs.

    An untrained model returns values around 0. Without this, the loss of targets such as prices is ruled by
    the distance to their mean, which takes an optimizer more steps than a run has.

    Args:
        mean: One value per target, or per channel of `[B, C, ...]`; empty: nothing is changed.
        std: As `mean`; zeros count as 1, so that a constant target stays finite.

    >>> scale = TargetScale([300_000.0], [50_000.0])
    >>> scale.standardize(torch.tensor([[350_000.0]])), scale.restore(torch.tensor([[1.0]]))
    (tensor([[1.]]), tensor([[350000.]]))
    """

    def __init__(self, mean: Sequence[float] = (), std: Sequence[float] = ()) -> None:
        self._mean, self._std = tuple(mean), tuple(value or 1.0 for value in std)
        self._ready: dict[tuple[torch.device, torch.dtype, int], tuple[Tensor, Tensor]] = {}

    def __bool__(self) -> bool:
        return bool(self._mean)

    def standardize(self, targets: Tensor) -> Tensor:
        """What the loss compares outputs with.

        Args:
            targets: `[B, T]` or `[B, C, ...]` in their own unit.

        Returns:
            Of the same shape, float32 or float64.
        """
        # Subtracted first: a single multiply-add would lose the digits of targets far from 0.
        mean, std = self._statistics(targets)
        return (targets - mean) / std

    def restore(self, outputs: Tensor) -> Tensor:
        """Outputs in the targets' own unit.

        Args:
            outputs: `[B, T]` or `[B, C, ...]`, standardised.

        Returns:
            Of the same shape, float32 or float64; the outputs themselves where nothing is changed.
        """
        if not self._mean:
            return outputs
        mean, std = self._statistics(outputs)
        return torch.addcmul(mean, outputs, std)

    def _statistics(self, like: Tensor) -> tuple[Tensor, Tensor]:
        dtype = torch.float64 if like.dtype == torch.float64 else torch.float32
        further = max(0, like.ndim - 2)
        key = (like.device, dtype, further)
        if key not in self._ready:
            # Two steps, because some devices have no float64.
            values = (torch.tensor(numbers, dtype=torch.float64) for numbers in (self._mean, self._std))
            shape = (-1, *[1] * further)
            mean, std = (value.to(dtype).to(like.device).view(shape) for value in values)
            self._ready[key] = mean, std
        return self._ready[key]


def target_scale(spec: Mapping[str, Any]) -> TargetScale:
    """That of a run; one that changes nothing where the loss itself does what there is to do."""
    task = task_of(spec["task"]) if "task" in spec else None
    if task is None or not (task.has_real_targets or task.reconstructs):
        return TargetScale()
    return TargetScale(spec.get("target_mean") or (), spec.get("target_std") or ())
