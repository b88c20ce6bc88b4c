"""Statistics of the training subset: of its inputs, and of targets that are real numbers."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, NamedTuple

import torch

from assay.data.loaders import preview
from assay.data.normalize import statistics
from assay.data.samples import Samples
from assay.data.subset import blocks

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from torch import Tensor

    from assay.data.splits import Splits
    from assay.data.subset import Subset
    from assay.data.transforms import Scale

_SAMPLES = 1024
"""That are looked at where all of them would have to be read or transformed."""


class InputStatistics(NamedTuple):
    """What inputs are normalised with, and between which values they lie."""

    mean: tuple[float, ...]
    std: tuple[float, ...]
    value_range: tuple[float, ...]


def input_statistics(
    subset: Subset, first: Tensor, scale: Scale | None, *, ranged: bool, seed: int, num_workers: int
) -> InputStatistics:
    """Statistics of the training subset's inputs, for which it is read once at most."""
    if scale is None and not (first.is_floating_point() or first.dtype == torch.uint8):
        scale = (), ()
    is_byte, ends = first.dtype == torch.uint8, [float("inf"), float("-inf")]

    def watched(inputs: Iterable[Tensor]) -> Iterator[Tensor]:
        for block in inputs:
            ends[:] = min(ends[0], float(block.min())), max(ends[1], float(block.max()))
            yield block

    looked_at = (
        blocks(subset.data.inputs, subset.rows)
        if isinstance(subset.data, Samples) and not subset.transforms
        else preview(subset, _SAMPLES, seed, num_workers)
    )
    if ranged and not is_byte:
        looked_at = watched(looked_at)
    if scale is None:
        scale = statistics(looked_at)
    elif ranged and not is_byte:
        deque(looked_at, maxlen=0)
    value_range = ((0.0, 1.0) if is_byte else tuple(ends)) if ranged else ()
    return InputStatistics(*scale, value_range)


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
