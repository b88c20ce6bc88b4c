"""Refuses data that cannot be trained on, before a model is built for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from assay.data.samples import Samples
from assay.data.splitting.subset import blocks
from assay.errors import DataError

if TYPE_CHECKING:
    from assay.data.samples import Stream, Unfitted


def check_lengths(part: str, data: Samples | Stream | Unfitted) -> None:
    """Refuse a part without samples, or with more or fewer inputs than targets.

    Args:
        part: For messages.
        data: The part.

    Raises:
        DataError: Naming the numbers.
    """
    num_targets = len(data.targets)
    if not num_targets:
        raise DataError(
            f"data: the {part} part has no samples", hint="add some, or name no such part in data.source"
        )
    num_inputs = len(data.inputs) if isinstance(data, Samples) else len(getattr(data, "dataset", data))
    if num_inputs != num_targets:
        raise DataError(
            f"data: the {part} part has {num_inputs} inputs and {num_targets} targets; as many were expected",
            hint="check which files or arrays data.source names",
        )


def check_inputs(part: str, data: Samples) -> None:
    """Refuse inputs without a feature dimension, and values that are not finite.

    Args:
        part: For messages.
        data: The part; only its floating-point tensors are looked through.

    Raises:
        DataError: Naming the first sample at fault.
    """
    if data.inputs.ndim < 2 or 0 in data.inputs.shape[1:]:
        raise DataError(
            f"data: the {part} part's inputs have shape {tuple(data.inputs.shape)}; "
            "[N, features] or [N, channels, …] was expected",
            hint="give a single feature a dimension of its own: inputs.reshape(-1, 1)",
        )
    for what, tensor in (("inputs", data.inputs), ("targets", data.targets)):
        if not tensor.is_floating_point():
            continue
        start = 0
        for block in blocks(tensor, torch.arange(len(tensor))):
            # A sum is finite only if all of it is; that it may overflow is settled by looking closer.
            if (
                not torch.isfinite(block.sum())
                and not (finite := torch.isfinite(block.flatten(1)).all(1)).all()
            ):
                row = start + int((~finite).nonzero()[0])
                raise DataError(
                    f"data: the {what} of the {part} part hold NaN or infinity, first in sample {row}",
                    hint="leave such samples out, or fill in what is missing",
                )
            start += len(block)
