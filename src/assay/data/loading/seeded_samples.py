"""Samples whose random draws depend on the seed and on which sample it is, and on nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, final

import numpy as np
import torch
from torch.utils.data import Dataset

from assay.data.transform.transforms import seed_generators


@final
class SeededSamples(Dataset[Any]):
    """A data set whose samples are asked for by (seed of what they draw, index).

    Args:
        dataset: Somebody's own.
    """

    def __init__(self, dataset: Any) -> None:
        self._dataset = dataset

    def __getitem__(self, key: tuple[tuple[int, ...], Any]) -> Any:
        """The sample of the index.

        Args:
            key: Seed and index.
        """
        seed_generators(key[0])
        return self._dataset[key[1]]

    def __getitems__(self, keys: list[tuple[tuple[int, ...], Any]]) -> Any:
        """The samples of a batch, from a data set that reads them together.

        Args:
            keys: Seeds and indices.
        """
        together = getattr(self._dataset, "__getitems__", None)
        if not together or not keys:
            return [self[key] for key in keys]
        seed_generators(keys[0][0])
        return together([index for _, index in keys])


def same(one: Any, other: Any) -> bool:
    """Whether two samples are equal, as far as they can be compared.

    Args:
        one: Tensors, arrays, numbers and texts, nested in any way.
        other: As `one`.

    >>> same((torch.tensor([1.0]), {"label": 3}), (torch.tensor([1.0]), {"label": 4}))
    False
    """
    if type(one) is not type(other):
        return False
    if isinstance(one, torch.Tensor | np.ndarray):
        first, second = np.asarray(one), np.asarray(other)
        return first.shape == second.shape and first.tobytes() == second.tobytes()
    if isinstance(one, Mapping):
        return list(one) == list(other) and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, int | float | str | bytes):
        return repr(one) == repr(other)  # NaN included
    return True
