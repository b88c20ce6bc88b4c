"""A subset as its loader sees it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, final

import torch

from assay.data.core.placement import BLOCK_ELEMENTS, free_memory, take_rows
from assay.data.core.samples import Samples
from assay.errors import NON_FINITE, DataError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from torch import Tensor

    from assay.data.core.transforms import Transforms


@final
@dataclass(frozen=True, eq=False)
class Subset:
    """The samples of a subset and what is still to be done to each."""

    data: Samples
    rows: Tensor
    keys: Tensor
    transforms: Transforms
    name: str

    def apply_once(self, processes: int = 1) -> Subset:
        """Apply the deterministic transforms the chain starts with, if data and result fit in memory."""
        head, tail = self.transforms.divide()
        if not head or not self.data.in_memory or not len(self.rows):
            return self
        one = self.rows[:1]
        first = head.pairs(self.data.inputs[one], self.data.targets[one], 0, 0, self.keys[:1])
        if sum(one.nbytes for one in first) * len(self.rows) > free_memory() // 4 // processes:
            return self
        inputs, targets = (one.new_empty((len(self.rows), *one.shape[1:])) for one in first)
        start = 0
        for block in blocks(self.data.inputs, self.rows):
            at = slice(start, start + len(block))
            chosen = self.data.targets[self.rows[at]]
            inputs[at], targets[at] = head.pairs(block, chosen, 0, 0, self.keys[at])
            start += len(block)
        every = torch.arange(len(self.rows))
        return Subset(Samples(inputs, targets), every, self.keys, tail, self.name)


def blocks(inputs: Tensor, rows: Tensor) -> Iterator[Tensor]:
    """Samples in blocks of a few million values, so that work on them takes bounded memory."""
    if not len(rows):
        return
    size = max(1, BLOCK_ELEMENTS // max(1, inputs[0].numel()))
    for chunk in rows.split(size):  # type: ignore[no-untyped-call]  # torch leaves it untyped
        yield take_rows(inputs, chunk)


def refuse_non_finite(values: Tensor, samples: Sequence[int], what: str) -> None:
    """Refuse NaN and infinity in values of samples, which the message names by their numbers."""
    # A sum is finite only if all of it is; that it may overflow is settled by looking closer.
    if not values.is_floating_point() or values.sum().isfinite():
        return
    if len(bad := (~values.isfinite()).nonzero()):
        raise DataError(
            f"data: the {what} hold NaN or infinity, first in sample {samples[int(bad[0, 0])]}",
            hint=NON_FINITE,
        )
