"""What a loss over C classes takes: hard class indices or soft class probabilities."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from assay.loss.at_least_float32 import at_least_float32

if TYPE_CHECKING:
    from torch import Tensor


def class_targets(outputs: Tensor, targets: Tensor, *, pixels: bool = False) -> tuple[Tensor, Tensor]:
    """Judge by shape and dtype alone that outputs and targets fit, and bring them to one precision.

    Args:
        outputs: Logits, float `[B, C]`, C at least 2.
        targets: Hard: integers `[B]`. Soft: floats `[B, C]`, rows sum to 1.
        pixels: Take masks, too: outputs `[B, C, ...]` with targets `[B, ...]` or `[B, C, ...]`.

    Returns:
        The logits in float32 or float64, and the targets: int64 `[B, ...]` if hard; `[B, C, ...]` in the
        logits' dtype if soft.

    Raises:
        ValueError: If shapes or dtypes do not fit.
    """
    logits = at_least_float32(outputs)
    usual = targets.dtype == torch.int64 and logits.ndim == 2 and targets.shape == logits.shape[:1]
    if usual and logits.shape[1] > 1:  # in each step, so it is found out in few words
        return logits, targets
    if logits.ndim < 2 or (logits.ndim > 2 and not pixels) or logits.shape[1] < 2:
        msg = (
            f"a loss over classes needs one logit per class, [B, C] with C at least 2, got outputs "
            f"{list(outputs.shape)}: for one logit per sample use loss=bce_with_logits."
        )
        raise ValueError(msg)
    if targets.is_floating_point():
        if targets.shape != logits.shape:
            msg = (
                f"soft targets {list(targets.shape)} do not fit outputs {list(outputs.shape)}: both must be "
                "[B, C]; hard targets must be integers [B]; for floats to regress use loss=mse."
            )
            raise ValueError(msg)
        return logits, targets.to(logits.dtype)
    if targets.shape != logits.shape[:1] + logits.shape[2:]:
        msg = (
            f"hard targets {list(targets.shape)} do not fit outputs {list(outputs.shape)}: expected one "
            f"class index a {'pixel' if logits.ndim > 2 else 'sample'}, "
            f"{[*logits.shape[:1], *logits.shape[2:]]}; for several labels a sample use loss=bce_with_logits."
        )
        raise ValueError(msg)
    return logits, targets.long()
