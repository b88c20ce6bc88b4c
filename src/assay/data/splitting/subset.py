"""One subset of a data set, as its loader sees it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, final

import torch

from assay.data.memory import free_memory
from assay.data.samples import Samples, Stream

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor

    from assay.data.transform.transforms import Transforms

_BLOCK_ELEMENTS = 1 << 22


@final
@dataclass(frozen=True, eq=False)
class Subset:
    """The samples of a subset and what is still to be done to each.

    Attributes:
        data: Subsets may share it.
        rows: int64 `[n]`, the subset's samples in `data`.
        keys: int64 `[n]`, the same samples' indices in their source; what random draws are keyed by.
        transforms: Still to be applied.
    """

    data: Samples | Stream
    rows: Tensor
    keys: Tensor
    transforms: Transforms

    def apply_once(self, processes: int = 1) -> Subset:
        """Apply the deterministic transforms the chain starts with, if data and result fit in memory.

        Args:
            processes: On this machine, each of which does it.

        Returns:
            A subset with samples of its own, or this one.
        """
        head, tail = self.transforms.divide()
        if not head or not isinstance(self.data, Samples) or not len(self.rows):
            return self
        one = self.rows[:1]
        pair = self.data.inputs.index_select(0, one), self.data.targets.index_select(0, one)
        first = head.pairs(*pair, 0, 0, self.keys[:1])
        if sum(one.nbytes for one in first) * len(self.rows) > free_memory() // 4 // processes:
            return self
        inputs, targets = (one.new_empty((len(self.rows), *one.shape[1:])) for one in first)
        start = 0
        for block in blocks(self.data.inputs, self.rows):
            there = slice(start, start + len(block))
            chosen = self.data.targets.index_select(0, self.rows[there])
            inputs[there], targets[there] = head.pairs(block, chosen, 0, 0, self.keys[there])
            start += len(block)
        return Subset(Samples(inputs, targets), torch.arange(len(self.rows)), self.keys, tail)


def blocks(inputs: Tensor, rows: Tensor) -> Iterator[Tensor]:
    """Samples in blocks of a few million values, so that work on them takes bounded memory.

    Args:
        inputs: `[N, ...]`.
        rows: int64 indices.

    Yields:
        `[B, ...]`, in the order of `rows`.
    """
    if not len(rows):
        return
    size = max(1, _BLOCK_ELEMENTS // max(1, inputs[0].numel()))
    for chunk in rows.split(size):  # type: ignore[no-untyped-call]  # torch leaves it untyped
        yield inputs.index_select(0, chunk)
