"""Batches of a subset, from memory or read by a DataLoader; and some samples, looked at before training."""

from __future__ import annotations

import os
import signal
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, final

import torch
from torch.utils.data import DataLoader, Dataset, default_collate
from typing_extensions import override

from assay.data.samples import Stream
from assay.data.transforms import seed_generators, stack
from assay.errors import DataError, first_line
from assay.torch_internals import end_workers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import Tensor

    from assay.data.batch_order import BatchOrder
    from assay.data.placement import Placement
    from assay.data.samples import IndexedDataset, Samples
    from assay.data.subset import Subset
    from assay.data.transforms import Transforms


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
        """Nothing to take up."""
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
            worker_init_fn=leave_signals,
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


def leave_signals(worker: int) -> None:
    """Take no notice of a stop: the run needs its processes for one step more, and ends them by SIGTERM."""
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
            inputs, targets, *rest = sample
            return (*self._transforms.pair(inputs, targets, draw), *rest)
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
    """Batch sampler whose indices carry the epoch, so that a worker knows it without being told."""

    def __init__(self, subset: Subset, order: BatchOrder, position: Callable[[], tuple[int, int]]) -> None:
        self._subset, self._order, self._position = subset, order, position

    def __len__(self) -> int:
        return len(self._order)

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
        batch_size=None,
        sampler=[(0, row, key) for row, key in zip(rows, keys, strict=True)],
        num_workers=num_workers,
    )
    block: list[Tensor] = []
    for sample in loader:
        block.append(input_of(sample))
        if len(block) == _MOST_AT_ONCE:
            yield stack(block)
            block = []
    if block:
        yield stack(block)


def input_of(sample: Any) -> Tensor:
    """The input of a sample."""
    if isinstance(sample, DataError):
        raise sample
    inputs = next(iter(sample.values())) if isinstance(sample, dict) else sample[0]
    if not isinstance(inputs, torch.Tensor):
        raise DataError(
            f"data: a sample's input is of type {type(inputs).__name__}; a tensor was expected",
            hint="convert it in the data set, for example with torchvision.transforms.v2.functional.to_image",
        )
    return inputs
