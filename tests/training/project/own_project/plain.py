"""The least that people write: a module without a test step, and a datamodule of one argument."""

from __future__ import annotations

import lightning as L
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset
from typing_extensions import override

Loader = DataLoader[tuple[Tensor, ...]]


class Plain(L.LightningModule):
    """One linear layer, trained on its mean squared error."""

    def __init__(self, width: int = 3) -> None:
        super().__init__()
        self.layer = nn.Linear(width, 1)

    @override
    def forward(self, inputs: Tensor) -> Tensor:
        outputs: Tensor = self.layer(inputs)
        return outputs

    @override
    def training_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> Tensor:
        loss: Tensor = (self(batch[0]) - batch[1]).square().mean()
        return loss

    @override
    def validation_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> None:
        self.log("val/loss", (self(batch[0]) - batch[1]).square().mean())

    @override
    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.1)


class Sums(L.LightningDataModule):
    """Rows of three numbers, and their sum."""

    def __init__(self, batch_size: int = 8) -> None:
        super().__init__()
        self.batch_size = batch_size

    @override
    def setup(self, stage: str) -> None:
        inputs = torch.randn(64, 3, generator=torch.Generator().manual_seed(0))
        self.rows = TensorDataset(inputs, inputs.sum(1, keepdim=True))

    @override
    def train_dataloader(self) -> Loader:
        return DataLoader(self.rows, self.batch_size)

    @override
    def val_dataloader(self) -> Loader:
        return DataLoader(self.rows, self.batch_size)
