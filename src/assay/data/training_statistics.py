"""Statistics of the training subset: of its inputs, and of targets that are real numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from assay.data.loaders import preview
from assay.data.normalize import statistics
from assay.data.samples import Samples
from assay.data.subset import blocks

if TYPE_CHECKING:
    from torch import Tensor

    from assay.data.splits import Splits
    from assay.data.subset import Subset
    from assay.data.transforms import Scale

_SAMPLES = 1024
"""That are looked at where all of them would have to be read or transformed."""


def input_statistics(
    subset: Subset, first: Tensor, scale: Scale | None, *, seed: int, num_workers: int
) -> Scale:
    """Mean and deviation of the training subset's inputs, for which it is read once at most."""
    if scale is not None:
        return scale
    if not (first.is_floating_point() or first.dtype == torch.uint8):
        return (), ()
    if isinstance(subset.data, Samples) and not subset.transforms:
        return statistics(blocks(subset.data.inputs, subset.rows))
    return statistics(preview(subset, _SAMPLES, seed, num_workers))


def target_statistics(splits: Splits) -> Scale:
    """Mean and deviation of each real target over the training subset; empty where there is none."""
    targets = splits.data["train"].targets
    columns = range(targets.shape[1] if targets.ndim == 2 else 1)
    real = [splits.task.standardizes(column, splits.class_names) for column in columns]
    if not any(real):
        return (), ()
    mean, std = statistics(blocks(targets, torch.as_tensor(splits.rows["train"])))
    return (
        tuple(value if is_real else 0.0 for value, is_real in zip(mean, real, strict=True)),
        tuple(value if is_real else 1.0 for value, is_real in zip(std, real, strict=True)),
    )
