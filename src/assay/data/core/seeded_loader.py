"""Custom `DataLoader`s, made resumable: a resumed run continues with the remaining samples."""

from __future__ import annotations

import logging
from functools import partial
from itertools import cycle, islice
from typing import TYPE_CHECKING, Any, final

import torch
from lightning.pytorch.utilities.combined_loader import CombinedLoader
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    DistributedSampler,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)

from assay.data.core.batch_order import train_position
from assay.data.core.loaders import Redrawn, ignore_stop_signals
from assay.data.core.transforms import describe_draws, seed_generators
from assay.splitmix import mix
from assay.torch_internals import end_workers, start_workers, tree_map

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    import lightning as L


@final
class SeededSamples(Dataset[Any]):
    """A data set whose samples are asked for by (seed of what they draw, index)."""

    def __init__(self, dataset: Any) -> None:
        self._dataset = dataset

    def __getitem__(self, key: tuple[tuple[int, ...], Any]) -> Any:
        seed_generators(key[0])
        return self._dataset[key[1]]

    def __getitems__(self, keys: list[tuple[tuple[int, ...], Any]]) -> Any:
        """The samples of a batch, from a data set that reads them together."""
        together = getattr(self._dataset, "__getitems__", None)
        if not together or not keys:
            return [self[key] for key in keys]
        seed_generators(keys[0][0])
        return together([index for _, index in keys])


log = logging.getLogger("assay.notes")

_KNOWN = (
    *(DistributedSampler, RandomSampler, SequentialSampler),
    *(SubsetRandomSampler, WeightedRandomSampler),
)
_OPTIONS = (
    *("num_workers", "collate_fn", "pin_memory", "timeout", "multiprocessing_context"),
    *("prefetch_factor", "pin_memory_device", "in_order"),
)


def seed_loaders(datamodule: L.LightningDataModule, seed: int) -> None:
    """Make the training batches of a custom datamodule a function of (seed, epoch, rank)."""
    # No local function: a spawned worker takes the datamodule along, if `collate_fn` is a method of it.
    seeded = partial(_seeded_loaders, datamodule, datamodule.train_dataloader, seed, {""})
    datamodule.train_dataloader = seeded  # type: ignore[method-assign]  # of this one object


def _seeded_loaders(
    datamodule: L.LightningDataModule, original: Callable[[], Any], seed: int, logged: set[str]
) -> Any:
    loaders = original()
    several = isinstance(loaders, list | tuple | dict | CombinedLoader)
    where = f"data: {type(datamodule).__qualname__}.train_dataloader"

    def wrapped(loader: Any) -> Any:
        if hasattr(loader, "load_state_dict") and hasattr(loader, "state_dict"):
            return loader  # it saves its own position
        seeded = SeededLoader(loader, seed, datamodule.trainer, cycled=several)
        if seeded.note not in logged:
            log.warning("%s: %s", where, seeded.note)
            logged.add(seeded.note)
        return seeded

    if isinstance(loaders, CombinedLoader):
        loaders.flattened = [wrapped(loader) for loader in loaders.flattened]
        return loaders
    return tree_map(wrapped, loaders)


@final
class SeededLoader:
    """Batches of a `torch.utils.data.DataLoader` in an order that is a function of (seed, epoch, rank)."""

    # The samplers stay the user's. Generators are seeded before each epoch and before each sample, so that
    # neither the number of workers nor a stop in between changes what is drawn.

    def __init__(
        self, loader: Any, seed: int, trainer: L.Trainer | None, *, cycled: bool = False
    ) -> None:
        self.loader = loader
        self._seed = seed
        self._trainer = trainer
        self._cycled = cycled
        self.note = ""
        """What to tell the user before training."""
        self._rank: int = getattr(trainer, "global_rank", 0)
        self._world: int = getattr(trainer, "world_size", 1)
        self._overfit = getattr(trainer, "overfit_batches", 0) > 0
        self._by_index = _is_stock(loader) and not isinstance(loader.dataset, IterableDataset)
        self._generators = _generators(loader)
        reason = self._describe_inexact()
        self.exact = not reason
        if reason:
            self.note = (
                f"{reason}, so a stopped run cannot resume in the middle of an epoch: it resumes "
                "from the start of the epoch"
            )
        elif apart := self._describe_draws():
            self.note = f"a sample of {type(loader.dataset).__qualname__} {apart}"
        self._inner: Any = self._rebuild()

    def __getattr__(self, name: str) -> Any:
        # Lightning would replace a sampler that shuffles
        if name in ("loader", "sampler", "batch_sampler"):
            raise AttributeError(name)
        return getattr(self.loader, name)

    def __len__(self) -> int:
        if self._by_index and self._overfit:
            return len(
                BatchSampler(
                    self.loader.dataset, self.loader.batch_size or 1, self.loader.drop_last
                )
            )
        if not self._by_index or self._world == 1 or self._is_distributed():
            return len(self.loader)
        share = -(-len(self._elements()) // self._world)
        if type(self.loader.batch_sampler) is BatchSampler:
            return len(_cut(range(share), self.loader.batch_sampler))
        return share

    @property
    def _iterator(self) -> Any:
        return getattr(self._inner, "_iterator", None)

    @_iterator.setter
    def _iterator(self, value: Any) -> None:  # Lightning ends persistent workers by it
        self._inner._iterator = value

    # -- position

    def __iter__(self) -> Iterator[Any]:
        # A generator: the position is read, and workers start, when the first batch is asked for.
        epoch, turn, number = self._position()
        if not self._by_index:
            self._begin(epoch, turn)
        running = start_workers(self._inner)
        try:
            for batch in running:
                self._seed_hooks((self._seed, self._rank, epoch, turn, number))
                number += 1
                yield batch
        finally:
            if not getattr(self._inner, "persistent_workers", False):  # a loader of any class
                end_workers(running)

    def _seed_hooks(self, key: tuple[int, ...]) -> None:
        """Of what a datamodule may draw while a batch is moved to the device, before the step is seeded."""
        seed_generators(key)
        if self._trainer and (device := self._trainer.strategy.root_device).type != "cpu":
            torch.get_device_module(device).manual_seed(mix(*key))

    def _position(self) -> tuple[int, int, int]:
        """Epoch, how often this loader has begun anew in it, and batches done since."""
        epoch, done = train_position(self._trainer)
        if not self._cycled:
            return epoch, 0, done
        return epoch, *(divmod(done, max(1, len(self))) if self.exact else (done, 0))

    def _begin(self, epoch: int, turn: int) -> None:
        for generator, first in self._generators.values():
            generator.manual_seed(mix(first, epoch, turn))
        for component in (*_samplers(self.loader), getattr(self.loader, "dataset", None)):
            if callable(set_epoch := getattr(component, "set_epoch", None)):
                set_epoch(epoch)
        rank_key = () if self._by_index else (self._rank,)
        seed_generators((self._seed, epoch, turn, *rank_key))

    def batches(self) -> Iterator[list[Any]]:
        """What is left of the epoch: indices of each batch, each with the seed of its sample's draws."""
        epoch, turn, start = self._position()
        for number, indices in enumerate(self._epoch(epoch, turn)):
            if number >= start:
                key = self._seed, self._rank, epoch, turn, number
                yield [((*key, place), index) for place, index in enumerate(indices)]

    def _epoch(self, epoch: int, turn: int) -> Iterable[list[Any]]:
        """Indices of the batches of an epoch that are this rank's."""
        self._begin(epoch, turn)
        loader = self.loader
        if self._overfit:
            samples = SequentialSampler(loader.dataset)
            return BatchSampler(samples, loader.batch_size or 1, loader.drop_last)
        elements: Iterable[Any] = self._elements()
        # at once, for a step between two of them would draw as well
        if hasattr(elements, "__len__"):
            elements = list(elements)
        if self._world > 1 and not self._is_distributed():
            elements = self._share(elements)
        if loader.batch_sampler is None:
            return ([index] for index in elements)
        if type(loader.batch_sampler) is BatchSampler:
            return _cut(elements, loader.batch_sampler)
        return (list(batch) for batch in elements)

    def _elements(self) -> Any:
        """What the ranks divide: samples, or the batches of a custom batch sampler."""
        batch_sampler: Any = self.loader.batch_sampler
        if batch_sampler is None:
            return self.loader.sampler
        if type(batch_sampler) is BatchSampler:
            return batch_sampler.sampler
        return batch_sampler

    def _is_distributed(self) -> bool:
        """Whether the sampler gives each rank its own samples."""
        samplers = (self.loader.sampler, self.loader.batch_sampler, self._elements())
        return any(
            hasattr(sampler, "num_replicas") and hasattr(sampler, "rank") for sampler in samplers
        )

    def _share(self, elements: Iterable[Any]) -> Iterable[Any]:
        if isinstance(elements, list):
            elements = islice(cycle(elements), -(-len(elements) // self._world) * self._world)
        return list(islice(elements, self._rank, None, self._world))

    def state_dict(self) -> dict[str, int]:
        """Nothing, as the position follows from the trainer's progress."""
        return {}

    def load_state_dict(self, state: Mapping[str, int]) -> None:
        """Nothing to restore."""
        del state

    # -- how it is read

    def _describe_inexact(self) -> str:
        if not self._by_index:
            source = getattr(self.loader, "dataset", self.loader)
            return f"{type(source).__qualname__} can only be read from its beginning"
        sampler = self._elements()
        if type(sampler) not in _KNOWN and not self._is_repeatable(sampler):
            return f"{type(sampler).__qualname__} gives another order when asked for the same epoch again"
        return ""

    def _describe_draws(self) -> str:
        """Of workers, nothing is read here: they may not share files that this process has opened."""
        sampler = self._elements()
        if self.loader.num_workers or type(sampler) not in _KNOWN:
            return ""
        return describe_draws(partial(self.loader.dataset.__getitem__, next(iter(sampler))))

    def _is_repeatable(self, sampler: Any) -> bool:
        """Whether a sampler's order is a function of the seed: it is asked for one epoch twice."""
        if not hasattr(sampler, "__len__"):
            return False  # it may be without an end
        orders = []
        for epoch in (0, 1, 0):
            self._begin(epoch, 0)
            orders.append([repr(element) for element in sampler])
        return orders[0] == orders[2]

    def _rebuild(self) -> Any:
        loader = self.loader
        if not _is_stock(loader):
            return loader
        options = {name: getattr(loader, name) for name in _OPTIONS}
        options["worker_init_fn"] = partial(_start_worker, loader.worker_init_fn)
        if not self._by_index:  # persistent workers would go on drawing where they were
            sizes = {"batch_size": loader.batch_size, "drop_last": loader.drop_last}
            return DataLoader(loader.dataset, generator=loader.generator, **sizes, **options)
        if loader.batch_sampler is None:
            first = Redrawn(lambda: (batch[0] for batch in self.batches()))
            chosen: dict[str, Any] = {"batch_size": None, "sampler": first}
        else:
            chosen = {"batch_sampler": Redrawn(self.batches)}
        keep = loader.persistent_workers
        return DataLoader(
            SeededSamples(loader.dataset), persistent_workers=keep, **chosen, **options
        )


def _is_stock(loader: Any) -> bool:
    """Whether it is read as torch's DataLoader, whatever its class has changed besides."""
    return isinstance(loader, DataLoader) and type(loader).__iter__ is DataLoader.__iter__


def _samplers(loader: Any) -> tuple[Any, Any, Any]:
    batch_sampler = getattr(loader, "batch_sampler", None)
    return (
        getattr(loader, "sampler", None),
        batch_sampler,
        getattr(batch_sampler, "sampler", None),
    )


def _generators(loader: Any) -> dict[int, tuple[torch.Generator, int]]:
    """Generators that a loader or its samplers draw from, each with its first seed."""
    drawn_from = (getattr(owner, "generator", None) for owner in (loader, *_samplers(loader)))
    return {
        id(item): (item, item.initial_seed())
        for item in drawn_from
        if isinstance(item, torch.Generator)
    }


def _cut(elements: Iterable[Any], like: BatchSampler) -> BatchSampler:
    return BatchSampler(elements, like.batch_size, like.drop_last)


def _start_worker(init: Callable[[int], None] | None, worker: int) -> None:
    ignore_stop_signals(worker)
    if init is not None:
        init(worker)
