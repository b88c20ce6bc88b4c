"""A loss adds up many small numbers: half precision is widened before the first of them."""

from __future__ import annotations

import torch
from torch import Tensor


def at_least_float32(values: Tensor) -> Tensor:
    """Widen bfloat16 and float16 to float32; leave float32 and float64 as they are.

    Args:
        values: Floats of any shape.

    Raises:
        ValueError: If `values` are not floats.

    >>> at_least_float32(torch.zeros(2, dtype=torch.bfloat16)).dtype
    torch.float32
    >>> at_least_float32(torch.zeros(2, dtype=torch.float64)).dtype
    torch.float64
    """
    if not values.is_floating_point():
        msg = f"a loss needs the model's outputs as floats, got {values.dtype}: let the model return logits."
        raise ValueError(msg)
    return values.float() if values.dtype in (torch.bfloat16, torch.float16) else values
