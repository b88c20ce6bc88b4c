"""Which samples make up which batch: a function of (seed, epoch, rank)."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field
from operator import itemgetter
from typing import TYPE_CHECKING, final

import torch

from assay.splitmix import mix

if TYPE_CHECKING:
    from collections.abc import Sequence

    import lightning as L
    from torch import Tensor

    from assay.data.core.types import Size
    from assay.task.task import Task


_POOL = 50
"""Batches within which samples are ordered by their length."""


def should_drop_last(
    drop_last: bool | str, num_samples: int, batch_size: int, world_size: int = 1
) -> bool:
    """Whether the last training batch of an epoch, which is smaller, is left out.

    >>> [should_drop_last("auto", number, 64) for number in (84, 1257, 65, 40)]
    [False, True, True, False]
    """
    if drop_last != "auto":
        return bool(drop_last)
    full, remainder = divmod(num_samples, batch_size * world_size)
    return full > 0 and (20 * remainder < num_samples or (remainder == 1 and world_size == 1))


def choose_batch_size(num_samples: int, task: Task) -> int:
    """How many samples `data.batch_size=auto` comes to: fewer for a small data set, so it gets more steps.

    >>> from assay.task.classification import Multiclass
    >>> [choose_batch_size(number, Multiclass()) for number in (500, 3000, 20_000, 100_000)]
    [16, 32, 64, 128]
    """
    if task.compares_views:
        return 256
    limits = (0, 500) if task.has_masks else (0, 0, 1000, 5000, 50_000)
    return 4 << bisect_right(limits, num_samples)


def train_position(trainer: L.Trainer | None) -> Size:
    """The epoch, and how many of its batches are done; the start without a trainer."""
    if trainer is None:
        return 0, 0
    return trainer.current_epoch, trainer.fit_loop.epoch_loop.batch_progress.current.ready


@final
@dataclass(frozen=True)
class BatchOrder:
    """Cuts `num_samples` positions into batches, for one of `world_size` ranks."""

    # Training (`even=True`) gives every rank equally many batches of equal size; what is missing comes from
    # the start of the epoch's order, or is left out with `drop_last`. Evaluation sees every sample exactly
    # once over all ranks, so that metrics are exact. A rank whose share ends early then gets the first sample
    # once more (`stand_ins`), which it does not count: the others wait for it in each collective.

    num_samples: int
    batch_size: int
    seed: int = 0
    shuffle: bool = False
    drop_last: bool = False
    even: bool = False
    rank: int = 0
    world_size: int = 1
    stand_ins: bool = False
    lengths: Tensor | None = field(default=None, compare=False, repr=False)
    weights: Tensor | None = field(default=None, compare=False, repr=False)

    def __len__(self) -> int:
        step = self.batch_size * self.world_size
        if self.drop_last:
            return self.num_samples // step
        return (self.num_samples + step - 1) // step

    def counts(self, batch: int) -> bool:
        """Whether a batch of this rank is of its share, and no stand-in."""
        return not self.stand_ins or batch * self.world_size + self.rank < self.num_samples

    def epoch(self, epoch: int) -> Tensor:
        """The order of all samples in one epoch, the same on every rank."""
        if not self.shuffle:
            return torch.arange(self.num_samples)
        generator = torch.Generator().manual_seed(mix(self.seed, epoch))
        if self.weights is not None:
            # As torch.multinomial, which takes at most 2^24 weights.
            ends = self.weights.double().cumsum(0)
            draws = torch.rand(self.num_samples, dtype=torch.float64, generator=generator)
            return torch.searchsorted(ends / ends[-1], draws)
        return torch.randperm(self.num_samples, generator=generator)

    def batches(self, epoch: int, start: int = 0, of: Tensor | None = None) -> list[Tensor]:
        """The batches of one epoch on this rank, cut all at once."""
        count = len(self)
        if not count:
            return []
        order = self.epoch(epoch)
        if self.lengths is not None and not self.even:
            order = order[self.lengths[order].argsort(stable=True)]
        if self.drop_last:
            order = order[: count * self.batch_size * self.world_size]
        elif self.even:
            places = torch.arange(-(-self.num_samples // self.world_size) * self.world_size)
            order = order[places % self.num_samples]
        if self.lengths is not None and self.shuffle and self.even:
            order = self._group_by_length(order, self.lengths, epoch)
        rows = order[self.rank :: self.world_size]
        stand_in = order[: int(self.stand_ins)]
        if of is not None:
            rows = of.index_select(0, rows)
            stand_in = of.index_select(0, stand_in)
        chunks = [chunk if len(chunk) else stand_in for chunk in self._cut(rows)[start:]]
        return [chunk for chunk in chunks if len(chunk)]

    def _cut(self, rows: Tensor) -> Sequence[Tensor]:
        """The rows of one rank in batches; evened out, so that no rank has a batch less than another."""
        if self.world_size == 1 or self.drop_last:
            return rows.split(self.batch_size)  # type: ignore[no-any-return, no-untyped-call]  # torch leaves it untyped
        return rows.tensor_split(len(self))

    def _group_by_length(self, order: Tensor, lengths: Tensor, epoch: int) -> Tensor:
        """The order with samples of similar lengths in the batch of all ranks, as `batches` cuts it.

        Within each pool of batches: the whole epoch in order of length would be the same each time.
        """
        sizes = [self.world_size * len(chunk) for chunk in self._cut(order[:: self.world_size])]
        generator = torch.Generator().manual_seed(mix(self.seed, epoch, _POOL))
        start = 0
        grouped: list[Tensor] = []
        for first in range(0, len(sizes), _POOL):
            pool_sizes = sizes[first : first + _POOL]
            pool = order[start : start + sum(pool_sizes)]
            start += len(pool)
            turn = torch.randperm(len(pool_sizes), generator=generator).tolist()
            by_length = pool[lengths[pool].argsort(stable=True)]
            chunks = torch.split(by_length, [pool_sizes[index] for index in turn])
            grouped += [
                chunk for _, chunk in sorted(zip(turn, chunks, strict=True), key=itemgetter(0))
            ]
        return torch.cat(grouped)
