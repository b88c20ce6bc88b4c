"""What a loss over single yes-or-no labels takes: one label per sample, or several."""

from __future__ import annotations

from typing import TYPE_CHECKING

from assay.loss.at_least_float32 import at_least_float32

if TYPE_CHECKING:
    from torch import Tensor


def one_label(outputs: Tensor) -> Tensor:
    """Bring outputs of one label from `[B, 1]` to `[B]`, widened to float32; leave `[B, L]` in its shape.

    Args:
        outputs: Float `[B]`, `[B, 1]` or `[B, L]`.

    Raises:
        ValueError: If `outputs` are of another shape, or no floats.
    """
    values = at_least_float32(outputs)
    if values.ndim not in (1, 2):
        msg = f"a binary loss needs one output per label, [B], [B, 1] or [B, L], got {list(outputs.shape)}."
        raise ValueError(msg)
    return values.squeeze(1) if values.ndim == 2 and values.shape[1] == 1 else values


def binary_targets(outputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """Bring outputs and targets to one shape and precision, judging by shape and dtype alone.

    Args:
        outputs: Float `[B]` or `[B, 1]` for one label, `[B, L]` for several.
        targets: For one label integers or floats in 0..1, `[B]` or `[B, 1]`, or soft: floats `[B, 2]`, the
            chances of no and yes. For several labels integers or floats `[B, L]`.

    Returns:
        Outputs and targets, both `[B]` or both `[B, L]`, in float32 or float64.

    Raises:
        ValueError: If shapes or dtypes do not fit.
    """
    values = one_label(outputs)
    if values.ndim == 1 and targets.ndim == 2:
        if targets.shape[1] == 1:
            targets = targets.squeeze(1)
        elif targets.shape[1] == 2 and targets.is_floating_point():
            targets = targets[:, 1]
    if targets.shape != values.shape:
        msg = (
            f"targets {targets.dtype} {list(targets.shape)} do not fit outputs {list(outputs.shape)}: one "
            "logit takes [B] (or soft floats [B, 2]), L logits take [B, L]; for classes that exclude each "
            "other use loss=cross_entropy."
        )
        raise ValueError(msg)
    return values, targets.to(values.dtype)
