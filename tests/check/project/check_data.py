"""Datamodules of somebody's own, with the loaders that people write, for the tests of the check."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import lightning as L
import torch
from lightning.pytorch.utilities.combined_loader import CombinedLoader
from torch import Tensor
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    IterableDataset,
    RandomSampler,
    TensorDataset,
    WeightedRandomSampler,
)

from assay.data.core.spec import Spec

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SAMPLES = 100


class Stream(IterableDataset[Any]):
    """Nobody knows how many there are."""

    def __iter__(self) -> Iterator[Any]:
        yield from ((torch.randn(4), torch.tensor(index % 3)) for index in range(SAMPLES))


class Counted(Stream):
    """Says how many there are."""

    def __len__(self) -> int:
        return SAMPLES


class Counts(Dataset[tuple[Tensor, int]]):
    """Samples of 16-bit integers."""

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        return torch.full((4,), index, dtype=torch.uint16), index % 3


class Own(L.LightningDataModule):
    """Cuts batches of its own size, which its config does not name."""

    def __init__(self, kind: str = "plain") -> None:
        super().__init__()
        counts: Any = {"class_counts": (34, 33, 33), "num_train": SAMPLES}
        self.kind, self.spec = kind, Spec(task="multiclass", input_shape=(4,), num_classes=3, **counts)
        self.samples = TensorDataset(torch.randn(SAMPLES, 4), torch.arange(SAMPLES) % 3)

    def train_dataloader(self) -> Any:
        data: Any = self.samples
        if self.kind == "needs_trainer":
            assert self.trainer is not None
        weighted = WeightedRandomSampler([1.0] * SAMPLES, 40)
        two = {"a": DataLoader(data, batch_size=16), "b": DataLoader(data, batch_size=10)}
        loaders: dict[str, Callable[[], Any]] = {
            "plain": lambda: DataLoader(data, batch_size=16, shuffle=True),
            "needs_trainer": lambda: DataLoader(data, batch_size=16),
            "drop_last": lambda: DataLoader(data, batch_size=16, shuffle=True, drop_last=True),
            "weighted": lambda: DataLoader(data, batch_size=8, sampler=weighted),
            "batch_sampler": lambda: DataLoader(
                data, batch_sampler=BatchSampler(RandomSampler(data), 30, drop_last=True)
            ),
            "one_by_one": lambda: DataLoader(data, batch_size=None),
            "counted": lambda: DataLoader(Counted(), batch_size=16),
            "stream": lambda: DataLoader(Stream(), batch_size=16),
            "two": lambda: list(two.values()),
            "shortest": lambda: CombinedLoader(two, "min_size"),
            "batches": lambda: [(torch.randn(5, 4), torch.zeros(5, dtype=torch.int64))] * 9,
        }
        return loaders[self.kind]()
