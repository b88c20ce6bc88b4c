"""Somebody's own LightningDataModule, which tells nothing about its data."""

from __future__ import annotations

import lightning as L
import torch
from torch.utils.data import DataLoader, TensorDataset


class Noise(L.LightningDataModule):
    def __init__(self, num_features: int) -> None:
        super().__init__()
        inputs = torch.randn(64, num_features, generator=torch.Generator().manual_seed(0))
        self.samples = TensorDataset(inputs, torch.zeros(64))

    def train_dataloader(self) -> DataLoader[tuple[torch.Tensor, ...]]:
        return DataLoader(self.samples, batch_size=16, shuffle=True)

    def val_dataloader(self) -> DataLoader[tuple[torch.Tensor, ...]]:
        return DataLoader(self.samples, batch_size=64)

    test_dataloader = val_dataloader
