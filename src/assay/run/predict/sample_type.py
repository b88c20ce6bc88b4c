"""The type that samples had in training: given others, or refused where that would change what they mean."""

from __future__ import annotations

import torch
from torch import Tensor

from assay.errors import DataError


def of_type(samples: Tensor, name: str) -> Tensor:
    """Samples in the type that the data had, where that changes no value's meaning.

    Args:
        samples: Of any type.
        name: Of the type, such as `uint8`; any other text leaves them as they are.

    Raises:
        DataError: It would.
    """
    trained_on = getattr(torch, name, None)
    if not isinstance(trained_on, torch.dtype) or samples.dtype == trained_on:
        return samples
    if trained_on.is_floating_point and samples.dtype != torch.uint8:
        return samples if samples.is_floating_point() else samples.float()
    low, high = (float(samples.min()), float(samples.max())) if samples.numel() else (0.0, 0.0)
    hint = "convert it as the training data was, for example inputs.float()"
    if trained_on == torch.uint8 and samples.is_floating_point():
        if low >= 0 and high <= 1:
            return samples
        hint = "floats from 0 to 1 may stand for it: inputs / 255; or inputs.to(torch.uint8)"
    elif not samples.is_floating_point() and not trained_on.is_floating_point:
        least, most = (0, 1) if trained_on == torch.bool else _limits(trained_on)
        if least <= low and high <= most:
            return samples.to(trained_on)
    raise DataError(
        f"the input is {samples.dtype} from {low:.4g} to {high:.4g}; the model was trained on {trained_on}",
        hint=hint,
    )


def _limits(dtype: torch.dtype) -> tuple[int, int]:
    info = torch.iinfo(dtype)
    return info.min, info.max
