from __future__ import annotations

import random
from itertools import product
from typing import TYPE_CHECKING, Any

import lightning as L
import numpy as np
import pytest
import torch
from tests.callbacks.quiet_trainer import quiet_trainer
from torch import Tensor, nn
from typing_extensions import override

from assay.callbacks.seed_each_step import SeedEachStep

if TYPE_CHECKING:
    from collections.abc import Iterator

# Lightning flattens its loaders with a class that torch has deprecated.
pytestmark = pytest.mark.filterwarnings("ignore:`isinstance.treespec, LeafSpec:FutureWarning")

Draw = tuple[float, float, float]
BATCHES = 6


def draw() -> Draw:
    return float(torch.rand(())), float(np.random.rand()), random.random()


class Batches:
    """An iterable of the same batches each time."""

    def __init__(self, length: int) -> None:
        self.length = length

    def __len__(self) -> int:
        return self.length

    def __iter__(self) -> Iterator[Tensor]:
        for index in range(self.length):
            yield torch.linspace(-1, 1, 12).reshape(3, 4) * (index + 1)


class Net(L.LightningModule):
    """Dropout, and a record of what each step could draw."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.net = nn.Sequential(nn.Linear(4, 16), nn.Dropout(0.5), nn.Linear(16, 1))
        self.draws: list[Draw] = []

    @override
    def training_step(self, batch: Tensor, batch_idx: int) -> Tensor:
        loss: Tensor = self.net(batch).square().mean()
        self.draws.append(draw())
        return loss

    @override
    def validation_step(self, batch: Tensor, batch_idx: int) -> None:
        draw()

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), lr=0.1)


def fit(net: Net, *callbacks: L.Callback, **options: Any) -> Net:
    settings: dict[str, Any] = {"max_epochs": 2, "val_check_interval": BATCHES, "num_sanity_val_steps": 0}
    trainer = quiet_trainer(*callbacks, **(settings | options))
    random.seed(1)
    np.random.seed(1)
    torch.manual_seed(1)
    trainer.fit(net, Batches(BATCHES), Batches(2))
    return net


def test_each_step_and_each_generator_draws_anew() -> None:
    net = fit(Net(), SeedEachStep(3))
    assert len(net.draws) == 2 * BATCHES
    for generator in zip(*net.draws, strict=True):
        assert len(set(generator)) == 2 * BATCHES


def test_ranks_and_stages_differ() -> None:
    callback = SeedEachStep(3)
    stages = ["step", "epoch", "val", "test"]
    seeds = {callback.seed_for(*moment) for moment in product(stages, range(8), range(500))}
    assert len(seeds) == 4 * 8 * 500
    # torch's CPU generator takes the lower half of a seed, NumPy the upper one.
    assert len({seed & 0xFFFFFFFF for seed in seeds}) > 0.999 * len(seeds)
    assert len({seed >> 32 for seed in seeds}) > 0.999 * len(seeds)
