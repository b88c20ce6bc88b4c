"""A LightningDataModule over scikit-learn's digits."""

import torch
from lightning import LightningDataModule
from sklearn.datasets import load_digits  # type: ignore[import-untyped]  # it ships no types
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, TensorDataset, random_split

Loader = DataLoader[tuple[Tensor, ...]]


class DigitsDataModule(LightningDataModule):
    """Three subsets of 1,797 pictures."""

    def __init__(
        self,
        data_dir: str = "data/",
        splits: tuple[int, int, int] = (1200, 300, 297),
        batch_size: int = 64,
        num_workers: int = 0,
    ) -> None:
        super().__init__()
        self.save_hyperparameters(logger=False)
        self.subsets: list[Dataset[tuple[Tensor, ...]]] = []

    def setup(self, stage: str | None = None) -> None:
        if not self.subsets:
            digits = load_digits()
            pictures = torch.tensor(digits.images, dtype=torch.float32) / 16
            everything = TensorDataset(pictures, torch.tensor(digits.target))
            generator = torch.Generator().manual_seed(42)
            self.subsets = [*random_split(everything, self.hparams["splits"], generator=generator)]

    def train_dataloader(self) -> Loader:
        return self.loader(0, shuffle=True)

    def val_dataloader(self) -> Loader:
        return self.loader(1)

    def test_dataloader(self) -> Loader:
        return self.loader(2)

    def loader(self, subset: int, shuffle: bool = False) -> Loader:
        of = self.hparams
        return DataLoader(
            self.subsets[subset], of["batch_size"], shuffle=shuffle, num_workers=of["num_workers"]
        )
