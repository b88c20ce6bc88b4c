"""Some samples of a subset, as a model gets them when it is evaluated."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from assay.data.loading.loaders import KeyedDataset
from assay.data.loading.preview import input_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torch import Tensor

    from assay.data.data_module import DataModule


def evaluated_samples(data: DataModule, name: str, positions: Sequence[int]) -> tuple[Tensor, Tensor]:
    """Inputs, normalised and on the device of the run, and targets.

    Args:
        data: Has been set up.
        name: `train`, `val`, `test` or `all`.
        positions: In the subset.

    Raises:
        DataError: A sample cannot be read.
    """
    subset = data.ready_subset(name, "eval")
    dataset = KeyedDataset(subset.data, subset.transforms, data.seed)
    keys = [(0, int(subset.rows[at]), int(subset.keys[at])) for at in positions]
    with torch.random.fork_rng(devices=[]):
        inputs = torch.stack([input_of(dataset[key]) for key in keys])
    targets = subset.data.targets[subset.rows[list(positions)]]
    return data.prepared(inputs.to(data.device), targets.to(data.device), data.dtype)


def labelled_samples(data: DataModule, choose: Callable[[Tensor], Tensor]) -> tuple[Tensor, Tensor] | None:
    """Training samples with their labels; None without labels, or of data that the model was not trained on.

    Args:
        data: Has been set up.
        choose: From the labels of all training samples, int64 `[N]`, to the positions of those wanted.
    """
    labels = data.splits.targets("train")
    if data.tested == "all" or labels.ndim != 1:
        return None
    return evaluated_samples(data, "train", choose(labels).tolist())
