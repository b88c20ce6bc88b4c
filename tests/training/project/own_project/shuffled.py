"""A LightningDataModule with the loaders that people write, and a module that notes its samples."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import lightning as L
import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import (
    DataLoader,
    Dataset,
    DistributedSampler,
    IterableDataset,
    RandomSampler,
    Sampler,
    Subset,
    WeightedRandomSampler,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

TRAINED: list[list[int]] = []
"""Samples of each step of this process, in order."""
_NUMBER = 22


class Numbered(Dataset[tuple[Tensor, Tensor]]):
    """Samples that begin with their number, and are disturbed anew each time, as by an augmentation."""

    def __len__(self) -> int:
        return _NUMBER

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        noise = torch.rand(3) + float(np.random.rand())
        return torch.cat([torch.tensor([float(index)]), noise]), torch.tensor([index / _NUMBER])


class Restless(Numbered):
    """Draws from a generator of its own."""

    def __init__(self) -> None:
        self.generator = np.random.default_rng(0)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        inputs, target = super().__getitem__(index)
        return inputs + torch.tensor([0.0, 1.0, 1.0, 1.0]) * float(self.generator.random()), target


class Endless(IterableDataset[tuple[Tensor, Tensor]]):
    """A stream: the numbered samples one after the other."""

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        info = torch.utils.data.get_worker_info()
        first, step = (info.id, info.num_workers) if info else (0, 1)
        for index in range(first, _NUMBER, step):
            yield Numbered()[index]


class Pairs(Sampler[list[int]]):
    """A batch sampler of one's own, shuffled by torch's global generator."""

    def __len__(self) -> int:
        return _NUMBER // 2

    def __iter__(self) -> Iterator[list[int]]:
        yield from torch.randperm(_NUMBER).view(-1, 2).tolist()


class Remembering(Sampler[int]):
    """A sampler whose order depends on how often it was asked."""

    def __init__(self) -> None:
        self.generator = np.random.default_rng(0)

    def __len__(self) -> int:
        return _NUMBER

    def __iter__(self) -> Iterator[int]:
        yield from self.generator.permutation(_NUMBER).tolist()


class Batches:
    """Batches without a DataLoader."""

    def __len__(self) -> int:
        return (_NUMBER + 3) // 4

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        return iter(DataLoader(Numbered(), batch_size=4))


class Shuffled(L.LightningDataModule):
    """Loaders of one kind.

    Args:
        kind: Of the training loader.
        num_workers: Of the training loader.
        persistent: Whether its workers live on between epochs.
    """

    def __init__(self, kind: str, num_workers: int = 0, persistent: bool = False) -> None:
        super().__init__()
        self.kind = kind
        self.options: dict[str, Any] = {"num_workers": num_workers}
        if num_workers:
            self.options["persistent_workers"] = persistent

    def train_dataloader(self) -> Any:
        data, options = Numbered(), self.options
        own = torch.Generator().manual_seed(5)
        makers: dict[str, Any] = {
            "shuffle": lambda: DataLoader(data, batch_size=4, shuffle=True, **options),
            "drop_last": lambda: DataLoader(data, batch_size=4, shuffle=True, drop_last=True, **options),
            "generator": lambda: DataLoader(data, batch_size=4, shuffle=True, generator=own, **options),
            "weighted": lambda: DataLoader(
                data, batch_size=4, sampler=WeightedRandomSampler([1.0, 2.0] * (_NUMBER // 2), 20), **options
            ),
            "batch_sampler": lambda: DataLoader(data, batch_sampler=Pairs(), **options),
            "distributed": lambda: DataLoader(
                data, batch_size=4, sampler=DistributedSampler(data, 1, 0, seed=3), **options
            ),
            "subset": lambda: DataLoader(Subset(data, range(18)), batch_size=4, shuffle=True, **options),
            "one_by_one": lambda: DataLoader(data, batch_size=None, sampler=RandomSampler(data), **options),
            "two": lambda: [
                DataLoader(data, batch_size=4, shuffle=True, **options),
                DataLoader(Subset(data, range(6)), batch_size=2, shuffle=True, **options),
            ],
            "restless": lambda: DataLoader(Restless(), batch_size=4, shuffle=True, **options),
            "stream": lambda: DataLoader(Endless(), batch_size=4, **options),
            "remembering": lambda: DataLoader(data, batch_size=4, sampler=Remembering(), **options),
            "batches": Batches,
        }
        return makers[self.kind]()

    def val_dataloader(self) -> DataLoader[tuple[Tensor, Tensor]]:
        return DataLoader(Numbered(), batch_size=11)

    test_dataloader = val_dataloader


class Counted(L.LightningModule):
    """A perceptron with dropout that writes down what it is trained on."""

    def __init__(self) -> None:
        super().__init__()
        self.model = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.3), nn.Linear(8, 1))

    def training_step(self, batch: Any) -> Tensor:
        batches = batch if isinstance(batch[0], list | tuple) else [batch]
        TRAINED.append([int(number) for inputs, _ in batches for number in inputs.reshape(-1, 4)[:, 0]])
        loss = sum(self._loss(one) for one in batches)
        self.log("train/loss", loss)
        self.log("train/mean_loss", loss, on_step=False, on_epoch=True, batch_size=len(TRAINED[-1]))
        return torch.as_tensor(loss)

    def _loss(self, batch: Any) -> Tensor:
        inputs, targets = batch
        return nn.functional.mse_loss(self.model(inputs.reshape(-1, 4) / _NUMBER), targets.reshape(-1, 1))

    def validation_step(self, batch: Any) -> None:
        loss = self._loss(batch)
        self.log("val/loss", loss, batch_size=1)
        self.log("val/each", loss, on_step=True, on_epoch=False)

    def test_step(self, batch: Any) -> None:
        self.log("test/loss", self._loss(batch))

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=0.01)
