"""Which samples make up which batch: a function of (seed, epoch, rank); loaders and statistics."""

from __future__ import annotations

import os
import signal
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from operator import itemgetter
from typing import TYPE_CHECKING, Any, final

import torch
from torch.utils.data import DataLoader, Dataset, default_collate
from typing_extensions import override

from assay.data.normalize import statistics
from assay.data.samples import Samples, Stream
from assay.data.subset import blocks
from assay.data.transforms import seed_generators, stack
from assay.errors import DataError, first_line
from assay.splitmix import mix
from assay.torch_internals import end_workers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import Tensor

    from assay.data.placement import Placement
    from assay.data.samples import IndexedDataset
    from assay.data.splits import Splits
    from assay.data.subset import Subset
    from assay.data.transforms import Scale, Transforms
    from assay.task.task import Task


_POOL = 50
"""Batches within which samples are ordered by their length."""


def should_drop_last(drop_last: bool | str, num_samples: int, batch_size: int, world_size: int = 1) -> bool:
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
    if task.has_masks:
        return 8 if num_samples < 500 else 16
    return 16 if num_samples < 1000 else 32 if num_samples < 5000 else 64 if num_samples < 50_000 else 128


@final
@dataclass(frozen=True)
class BatchOrder:
    """Cuts `num_samples` positions into batches, for one of `world_size` ranks."""

    # Training (`even=True`) gives every rank equally many batches of equal size; what is missing comes from
    # the start of the epoch's order, or is left out with `drop_last`. Evaluation sees every sample exactly
    # once over all ranks, so that metrics are exact.

    num_samples: int
    batch_size: int
    seed: int = 0
    shuffle: bool = False
    drop_last: bool = False
    even: bool = False
    rank: int = 0
    world_size: int = 1
    lengths: Tensor | None = field(default=None, compare=False, repr=False)
    weights: Tensor | None = field(default=None, compare=False, repr=False)

    def __len__(self) -> int:
        step = self.batch_size * self.world_size
        return self.num_samples // step if self.drop_last else -(-self.num_samples // step)

    def epoch(self, epoch: int) -> Tensor:
        """The order of all samples in one epoch, the same on every rank."""
        if not self.shuffle:
            return torch.arange(self.num_samples)
        generator = torch.Generator().manual_seed(mix(self.seed, epoch))
        if self.weights is not None:
            return torch.multinomial(self.weights, self.num_samples, replacement=True, generator=generator)
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
            missing = -self.num_samples % self.world_size
            order = torch.cat([order, order.repeat(-(-missing // self.num_samples))[:missing]])
        if self.lengths is not None and self.shuffle and self.even:
            order = self._group_by_length(order, self.lengths, epoch)
        rows = order[self.rank :: self.world_size]
        if of is not None:
            rows = of.index_select(0, rows)
        if self.world_size == 1 or self.drop_last:
            chunks = rows.split(self.batch_size)  # type: ignore[no-untyped-call]  # torch leaves it untyped
        else:  # evened out, so that no rank has a batch less than another
            chunks = rows.tensor_split(count)
        return [chunk for chunk in chunks[start:] if len(chunk)]

    def _group_by_length(self, order: Tensor, lengths: Tensor, epoch: int) -> Tensor:
        """The order with samples of similar lengths in the batch of all ranks, as `batches` cuts it.

        Within each pool of batches: the whole epoch in order of length would be the same each time.
        """
        step, count = self.batch_size * self.world_size, len(self)
        if self.world_size == 1 or self.drop_last:
            sizes = [min(step, len(order) - start) for start in range(0, len(order), step)]
        else:
            positions = torch.arange(len(order) // self.world_size)
            sizes = [self.world_size * len(chunk) for chunk in positions.tensor_split(count)]
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
            grouped += [chunk for _, chunk in sorted(zip(turn, chunks, strict=True), key=itemgetter(0))]
        return torch.cat(grouped)


class SubsetLoader(ABC):
    """Batches of a subset, from the position that the trainer is at."""

    order: BatchOrder
    _subset: Subset

    def __len__(self) -> int:
        return len(self.order)

    @abstractmethod
    def __iter__(self) -> Iterator[Any]: ...

    def samples(self, epoch: int, batch: int) -> Tensor:
        """Which samples make up a batch, by their index in the source."""
        return self.order.batches(epoch, batch, of=self._subset.keys)[0]

    def state_dict(self) -> dict[str, Any]:
        """Nothing, as the position follows from the trainer's progress; tells Lightning it can resume."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Nothing to restore."""
        del state


@final
class MemoryLoader(SubsetLoader):
    """Batches of a data set in memory: one gather each, on the device the data lies on."""

    def __init__(
        self,
        subset: Subset,
        placement: Placement,
        order: BatchOrder,
        position: Callable[[], tuple[int, int]],
        device: Callable[[], torch.device],
    ) -> None:
        self.order = order
        self._subset, self._placement, self._position, self._device = subset, placement, position, device

    @override
    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        epoch, start = self._position()
        subset, order = self._subset, self.order
        batches = self._placement.batches(order.batches(epoch, start, of=subset.rows), self._device())
        if not subset.transforms:
            yield from batches
            return
        for (inputs, targets), keys in zip(batches, order.batches(epoch, start, of=subset.keys), strict=True):
            yield subset.transforms.pairs(inputs, targets, order.seed, epoch, keys)


@final
class StreamLoader(SubsetLoader):
    """Batches of a data set read sample by sample: torch's DataLoader over the same order of samples."""

    def __init__(
        self, subset: Subset, order: BatchOrder, position: Callable[[], tuple[int, int]], **options: Any
    ) -> None:
        self.order, self._subset = order, subset
        self._running: Any = None
        self._loader: DataLoader[Any] = DataLoader(
            KeyedDataset(subset.data, subset.transforms, order.seed),
            batch_sampler=_KeyedBatches(subset, order, position),
            collate_fn=collate,
            worker_init_fn=ignore_stop_signals,
            **options,
        )

    @override
    def __iter__(self) -> Iterator[Any]:
        # A generator: workers start, and the position is read, when the first batch is asked for.
        self._running = iter(self._loader)
        for batch in self._running:
            if isinstance(batch, DataError):
                raise batch
            yield batch

    def close(self) -> None:
        """End the processes that read samples, now; another epoch starts new ones."""
        running, self._running, self._loader._iterator = self._running, None, None
        end_workers(running)


def ignore_stop_signals(worker: int) -> None:
    """Ignore stop signals: the run needs its workers for one more step and ends them with SIGTERM."""
    del worker
    if hasattr(os, "setpgid"):
        os.setpgid(0, 0)  # a terminal, a launcher and a scheduler tell whole groups
    for name in ("SIGINT", "SIGUSR1"):
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), signal.SIG_IGN)


@final
class KeyedDataset(Dataset[Any]):
    """Reads and transforms the sample of a key (epoch, row, index in the source)."""

    def __init__(self, data: Samples | Stream, transforms: Transforms, seed: int) -> None:
        self._dataset: IndexedDataset = data.dataset if isinstance(data, Stream) else data
        self._transforms, self._seed = transforms, seed

    def __getitem__(self, key: tuple[int, int, int]) -> Any:
        """The sample, or the `DataError` that kept it from being read: a worker would raise it unreadably."""
        epoch, row, index = key
        draw = (self._seed, epoch, index)
        try:
            seed_generators(draw)
            sample = self._dataset[row]
            if not self._transforms:
                return sample
            if isinstance(sample, dict):
                names = [*sample][:2]
                pair = self._transforms.pair(sample[names[0]], sample[names[1]], draw)
                return {**sample, **dict(zip(names, pair, strict=True))}
            inputs, targets, *extra = sample
            return (*self._transforms.pair(inputs, targets, draw), *extra)
        except DataError as error:
            return error


def collate(samples: list[Any]) -> Any:
    """As torch's `default_collate`; one `DataError` among the samples stands for them all."""
    for sample in samples:
        if isinstance(sample, DataError):
            return sample
    try:
        return default_collate(samples)
    except (RuntimeError, TypeError) as error:
        return DataError(
            f"data: samples cannot make up one batch: {first_line(error)}",
            hint="bring images to one size: data/transform=resize; give tensors, arrays or numbers",
        )


@final
class _KeyedBatches:
    """Batch sampler whose indices carry the epoch, so that workers need no other state."""

    def __init__(self, subset: Subset, order: BatchOrder, position: Callable[[], tuple[int, int]]) -> None:
        self._subset, self._order, self._position = subset, order, position

    def __iter__(self) -> Iterator[list[tuple[int, int, int]]]:
        epoch, start = self._position()
        chosen = (self._order.batches(epoch, start, of=of) for of in (self._subset.rows, self._subset.keys))
        for rows, keys in zip(*chosen, strict=True):
            yield [(epoch, row, key) for row, key in zip(rows.tolist(), keys.tolist(), strict=True)]


_MOST_AT_ONCE = 32


def preview(subset: Subset, count: int, seed: int, num_workers: int = 0) -> Iterator[Tensor]:
    """Inputs of samples drawn at random, as the subset's loader would give them."""
    chosen = torch.randperm(len(subset.rows), generator=torch.Generator().manual_seed(seed))[:count]
    if isinstance(subset.data, Stream) and subset.data.unlike:
        unlike = torch.isin(subset.rows, torch.tensor(subset.data.unlike)).nonzero()[:, 0]
        chosen = torch.cat([unlike, chosen])
    rows, keys = subset.rows[chosen].tolist(), subset.keys[chosen].tolist()
    loader: DataLoader[Any] = DataLoader(
        KeyedDataset(subset.data, subset.transforms, seed),
        batch_size=_MOST_AT_ONCE,
        sampler=[(0, row, key) for row, key in zip(rows, keys, strict=True)],
        collate_fn=list,
        num_workers=num_workers,
    )
    for samples in loader:
        yield stack(list(map(input_of, samples)))


def input_of(sample: Any) -> Tensor:
    """The input of a sample."""
    if isinstance(sample, DataError):
        raise sample
    inputs = next(iter(sample.values())) if isinstance(sample, dict) else sample[0]
    if not isinstance(inputs, torch.Tensor):
        raise DataError(
            f"data: expected a sample's input to be a tensor, got {type(inputs).__name__}",
            hint="convert it in the data set, for example with torchvision.transforms.v2.functional.to_image",
        )
    return inputs


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
