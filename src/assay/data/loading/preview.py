"""Some transformed samples of a subset, looked at before training."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.utils.data import DataLoader

from assay.data.loading.loaders import KeyedDataset
from assay.data.samples import Stream
from assay.data.transform.transforms import stack
from assay.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor

    from assay.data.splitting.subset import Subset

_BLOCK = 32


def preview(subset: Subset, count: int, seed: int, num_workers: int = 0) -> Iterator[Tensor]:
    """Inputs of samples drawn at random, as the subset's loader would give them.

    Args:
        subset: Any subset.
        count: Samples at most.
        seed: Of the draw and of random transforms.
        num_workers: Processes that read.

    Yields:
        Inputs `[B, ...]`; before the others, samples that are known to differ in shape.

    Raises:
        DataError: A sample cannot be read or transformed, is not a tensor, or has a shape of its own.
    """
    chosen = torch.randperm(len(subset.rows), generator=torch.Generator().manual_seed(seed))[:count]
    if isinstance(subset.data, Stream) and subset.data.unlike:
        unlike = torch.isin(subset.rows, torch.tensor(subset.data.unlike)).nonzero()[:, 0]
        chosen = torch.cat([unlike, chosen])
    rows, keys = subset.rows[chosen].tolist(), subset.keys[chosen].tolist()
    loader: DataLoader[Any] = DataLoader(
        KeyedDataset(subset.data, subset.transforms, seed),
        batch_size=None,
        sampler=[(0, row, key) for row, key in zip(rows, keys, strict=True)],
        num_workers=num_workers,
    )
    block: list[Tensor] = []
    for sample in loader:
        block.append(input_of(sample))
        if len(block) == _BLOCK:
            yield stack(block)
            block = []
    if block:
        yield stack(block)


def input_of(sample: Any) -> Tensor:
    """The input of a sample.

    Args:
        sample: Of a `KeyedDataset`.

    Raises:
        DataError: It cannot be read, or is not a tensor.
    """
    if isinstance(sample, DataError):
        raise sample
    inputs = next(iter(sample.values())) if isinstance(sample, dict) else sample[0]
    if not isinstance(inputs, torch.Tensor):
        raise DataError(
            f"data: a sample's input is of type {type(inputs).__name__}; a tensor was expected",
            hint="convert it in the data set, for example with torchvision.transforms.v2.functional.to_image",
        )
    return inputs
