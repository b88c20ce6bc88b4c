"""Batches from the position that the trainer is at, and statistics of samples."""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
from abc import ABC, abstractmethod
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, final

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset, default_collate
from typing_extensions import override

from assay.data.core.normalize import category_shares, statistics
from assay.data.core.placement import free_memory
from assay.data.core.samples import Samples
from assay.data.core.subset import Subset, blocks, refuse_non_finite
from assay.data.core.transforms import Transforms, seed_generators, stack
from assay.errors import DataError, first_line
from assay.task.task import describe_subset
from assay.torch_internals import end_workers, start_workers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from torch import Tensor

    from assay.data.core.batch_order import BatchOrder
    from assay.data.core.placement import Placement
    from assay.data.core.source import TrainStream
    from assay.data.core.splits import Splits
    from assay.data.core.transforms import Scale
    from assay.data.core.types import Pair, Size

    Numbers = tuple[float, ...]
    Position = Callable[[], Size]

# Workers fork from a process that has imported this, where the start method is `forkserver`, as it is on
# Linux from Python 3.14 on; else each one would import torch.
multiprocessing.set_forkserver_preload([__name__])


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
        position: Position,
        device: Callable[[], torch.device],
    ) -> None:
        self.order = order
        self._subset = subset
        self._placement = placement
        self._position = position
        self._device = device

    @override
    def __iter__(self) -> Iterator[Pair]:
        epoch, start = self._position()
        subset = self._subset
        order = self.order
        batches = self._placement.batches(
            order.batches(epoch, start, of=subset.rows), self._device()
        )
        if not subset.transforms:
            yield from batches
            return
        for (inputs, targets), keys in zip(
            batches, order.batches(epoch, start, of=subset.keys), strict=True
        ):
            yield subset.transforms.pairs(inputs, targets, order.seed, epoch, keys)


@final
class StreamLoader(SubsetLoader):
    """Batches that torch's DataLoader reads: sample by sample, or in pieces of the windows of a stream."""

    def __init__(
        self,
        data: Subset | TrainStream,
        order: BatchOrder,
        position: Position,
        transforms: Transforms | None = None,
        bytes_per_sample: int = 0,
        **options: Any,
    ) -> None:
        self.order = order
        self._data = data
        self._running: Any = None
        if isinstance(data, Subset):
            self._subset = data
            keyed: Any = KeyedDataset(data.data, data.transforms, order.seed)
            sampler = Redrawn(partial(_draw_keys, data, order, position))
            options |= {"batch_sampler": sampler, "collate_fn": collate}
        else:
            sample = max(data.row_bytes, bytes_per_sample)
            most = max(1, _CHUNK_BYTES // (order.batch_size * sample))
            keyed = _Chunks(data, transforms or Transforms(), order)
            sampler = Redrawn(
                partial(_draw_chunks, data.steps_per_window(order), order, position, most)
            )
            options |= {"batch_size": None, "sampler": sampler}
        self._loader: DataLoader[Any] = DataLoader(
            keyed, worker_init_fn=ignore_stop_signals, **options
        )

    @override
    def __iter__(self) -> Iterator[Any]:
        # A generator: workers start, and the position is read, when the first batch is asked for.
        self._running = start_workers(self._loader)
        for batch in self._running:
            if isinstance(batch, DataError):
                raise batch
            yield from batch if isinstance(batch, _Several) else (batch,)

    @override
    def samples(self, epoch: int, batch: int) -> Tensor:
        if isinstance(self._data, Subset):
            return super().samples(epoch, batch)
        return torch.from_numpy(self._data.rows(self.order, epoch, batch))

    def read_batch(self, epoch: int, batch: int) -> Any:
        """A batch, read once more in this process."""
        dataset = self._loader.dataset
        if not isinstance(self._data, Subset):
            return dataset[epoch, batch, 1][0]
        rows, keys = (
            self.order.batches(epoch, batch, of=numbers)[0].tolist()
            for numbers in (self._subset.rows, self._subset.keys)
        )
        return collate([dataset[epoch, *key] for key in zip(rows, keys, strict=True)])

    def close(self) -> None:
        """End the processes that read samples, now; another epoch starts new ones."""
        running = self._running
        self._running = None
        self._loader._iterator = None
        end_workers(running)


_CHUNK_BYTES = 1 << 23
"""Of samples that a worker hands over at a time."""


def ignore_stop_signals(worker: int) -> None:
    """Ignore stop signals: the run needs its workers for one more step and ends them with SIGTERM."""
    del worker
    if hasattr(os, "setpgid"):
        os.setpgid(0, 0)  # a terminal, a launcher and a scheduler tell whole groups
    for number in (signal.SIGINT, getattr(signal, "SIGUSR1", signal.SIGINT)):
        signal.signal(number, signal.SIG_IGN)


@final
class KeyedDataset(Dataset[Any]):
    """Reads and transforms the sample of a key (epoch, row, index in the source)."""

    def __init__(self, data: Samples, transforms: Transforms, seed: int) -> None:
        self._samples = data
        self._transforms = transforms
        self._seed = seed

    def __getitem__(self, key: tuple[int, int, int]) -> Any:
        """The sample, or the `DataError` that kept it from being read: a worker would raise it unreadably."""
        epoch, row, index = key
        draw = (self._seed, epoch, index)
        try:
            seed_generators(draw)
            sample = self._samples[row]
            if not self._transforms:
                return sample
            inputs, targets, *extra = parts_of(sample)
            pair = (*self._transforms.pair(inputs, targets, draw), *extra)
            if isinstance(sample, dict):
                return dict(zip(sample, pair, strict=True))
            return pair
        except DataError as error:
            return error


def collate(samples: list[Any]) -> Any:
    """As torch's `default_collate`; one `DataError` among the samples stands for them all."""
    if failed := [sample for sample in samples if isinstance(sample, DataError)]:
        return failed[0]
    try:
        return default_collate(samples)
    except (RuntimeError, TypeError) as error:
        return DataError(
            f"data: samples cannot make up one batch: {first_line(error)}",
            hint="bring images to one size: data/transform=resize; give tensors, arrays or numbers",
        )


@final
class Redrawn:
    """A sampler whose order a function draws anew for each pass."""

    def __init__(self, draw: Callable[[], Iterator[Any]]) -> None:
        self._draw = draw

    def __iter__(self) -> Iterator[Any]:
        return self._draw()


def _draw_keys(
    subset: Subset, order: BatchOrder, position: Position
) -> Iterator[list[tuple[int, int, int]]]:
    """Batches of keys that carry the epoch, so that workers need no other state."""
    epoch, start = position()
    for at in order.batches(epoch, start):
        keys = zip(subset.rows[at].tolist(), subset.keys[at].tolist(), strict=True)
        yield [(epoch, *key) for key in keys]


@final
class _Several(list[Any]):
    """Batches that follow each other."""


@final
class _Chunks(Dataset[Any]):
    """Batches of a stream that follow each other in one window, by (epoch, first, count)."""

    def __init__(self, stream: TrainStream, transforms: Transforms, order: BatchOrder) -> None:
        self._stream = stream
        self._transforms = transforms
        self._order = order

    def __getitem__(self, key: tuple[int, int, int]) -> Any:
        """The batches, or the `DataError` that kept them from being read, as of `KeyedDataset`."""
        try:
            return _Several(self._stream.batches(self._order, *key, self._transforms))
        except DataError as error:
            return error


def _draw_chunks(
    in_window: int, order: BatchOrder, position: Position, most: int
) -> Iterator[tuple[int, int, int]]:
    """What is left of an epoch."""
    epoch, first = position()
    while first < len(order):
        left = min(in_window - first % in_window, len(order) - first, most)
        yield epoch, first, left
        first += left


_MOST_AT_ONCE = 32


def preview(subset: Subset, count: int, seed: int, num_workers: int = 0) -> Iterator[Tensor]:
    """Inputs of samples drawn at random, as the subset's loader would give them."""
    chosen = torch.randperm(len(subset.rows), generator=torch.Generator().manual_seed(seed))[
        :count
    ]
    if subset.data.unlike:
        unlike = torch.isin(subset.rows, torch.tensor(subset.data.unlike)).nonzero()[:, 0]
        chosen = torch.cat([unlike, chosen])
    yield from _read_inputs(subset, chosen, seed, num_workers=num_workers)


def _read_inputs(
    subset: Subset, positions: Tensor, seed: int, **options: Any
) -> Iterator[Tensor]:
    numbers = subset.keys[positions].tolist()
    keys = zip(subset.rows[positions].tolist(), numbers, strict=True)
    loader: DataLoader[Any] = DataLoader(
        KeyedDataset(subset.data, subset.transforms, seed),
        batch_size=_MOST_AT_ONCE,
        sampler=[(0, *key) for key in keys],
        collate_fn=list,
        **options,
    )
    for batch, samples in enumerate(loader):
        inputs = stack(list(map(input_of, samples)))
        refuse_non_finite(
            inputs, numbers[batch * _MOST_AT_ONCE :], f"inputs of {describe_subset(subset.name)}"
        )
        yield inputs


def parts_of(sample: Any) -> Sequence[Any]:
    """Input, target and what else a sample or a batch has: a tuple, or a mapping's values in order."""
    if isinstance(sample, Mapping):
        return [*sample.values()]
    return sample  # type: ignore[no-any-return]  # a tuple or a list


def input_of(sample: Any) -> Tensor:
    """The input of a sample."""
    if isinstance(sample, DataError):
        raise sample
    inputs = parts_of(sample)[0]
    if not isinstance(inputs, torch.Tensor):
        raise DataError(
            f"data: expected a sample's input to be a tensor, got {type(inputs).__name__}",
            hint="convert it in the data set, for example with torchvision.transforms.v2.functional.to_image",
        )
    return inputs


_log = logging.getLogger("assay.notes")


def compute_features(
    subset: Subset,
    compute: Callable[[Tensor], Tensor | None],
    seed: int,
    num_workers: int,
) -> Subset | None:
    """A subset with what `compute` makes of its images; None where that is nothing, or no memory is left."""
    every = torch.arange(len(subset.rows))
    features: list[Tensor] = []
    for images in _read_inputs(
        subset, every, seed, num_workers=num_workers, worker_init_fn=ignore_stop_signals
    ):
        part = compute(images)
        if part is None or part[0].nbytes * len(subset.rows) > free_memory() // 4:
            return None
        if not features:
            _log.warning(
                "note: computing once what the head sees of %s images", f"{len(subset.rows):,}"
            )
        features.append(part.cpu())
    data = Samples(torch.cat(features), subset.data.targets[subset.rows])
    return Subset(data, every, subset.keys, Transforms(), subset.name)


_SAMPLES = 1024
"""That are looked at where all of them would have to be read or transformed."""


def input_statistics(
    subset: Subset,
    first: Tensor,
    scale: Scale | None,
    seed: int,
    num_workers: int,
    *,
    one_hot: Sequence[int] = (),
) -> Scale:
    """Mean and deviation of the training subset's inputs, for which it is read once at most."""
    if scale is not None:
        return scale
    if not (first.is_floating_point() or first.dtype == torch.uint8):
        return (), ()
    if subset.data.in_memory and not subset.transforms:
        read = partial(blocks, subset.data.inputs, subset.rows)
    else:
        read = partial(preview, subset, _SAMPLES, seed, num_workers)
    mean, std = statistics(read())
    if not one_hot:
        return mean, std
    shares = category_shares(read(), one_hot)
    deviations = (shares * (1 - shares)).sqrt()
    numbers = len(mean) - len(one_hot)
    return (
        (*mean[:numbers], *shares.tolist()),
        (*std[:numbers], *deviations.tolist()),
    )


def keep_codes(mean: Numbers, std: Numbers, width: int, codes: int) -> Scale:
    """A scale for inputs `[N, width]` that leaves the codes in their last columns as they are."""
    if not mean:
        return mean, std
    numbers = width - codes
    return (
        (mean * width)[:numbers] + (0.0,) * codes,
        (std * width)[:numbers] + (1.0,) * codes,
    )


def target_statistics(splits: Splits) -> Scale:
    """Mean and deviation of each real target over the training subset; empty where there is none."""
    targets = splits.data["train"].targets
    columns = range(targets.shape[1] if targets.ndim == 2 else 1)
    real = [splits.task.standardizes(column, splits.class_names) for column in columns]
    if not any(real):
        return (), ()
    mean, std = map(np.array, statistics(blocks(targets, torch.as_tensor(splits.rows["train"]))))
    return tuple(np.where(real, mean, 0.0).tolist()), tuple(np.where(real, std, 1.0).tolist())
