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
    from pathlib import Path

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
        self.validation_draws: list[Draw] = []
        self.save_at: tuple[str, int, Path] | None = None

    @override
    def training_step(self, batch: Tensor, batch_idx: int) -> Tensor:
        self.save("training_step")
        loss: Tensor = self.net(batch).square().mean()
        self.draws.append(draw())
        return loss

    @override
    def validation_step(self, batch: Tensor, batch_idx: int) -> None:
        self.validation_draws.append(draw())

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), lr=0.1)

    def save(self, moment: str) -> None:
        if self.save_at is not None and self.save_at[:2] == (moment, len(self.draws)):
            self.trainer.save_checkpoint(self.save_at[2])


class Saver(L.Callback):
    @override
    def on_train_batch_end(self, trainer: L.Trainer, pl_module: L.LightningModule, *_: Any) -> None:
        assert isinstance(pl_module, Net)
        pl_module.save("on_train_batch_end")

    @override
    def on_validation_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        assert isinstance(pl_module, Net)
        pl_module.save("on_validation_end")

    @override
    def on_train_epoch_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        assert isinstance(pl_module, Net)
        pl_module.save("on_train_epoch_end")


def fit(net: Net, *callbacks: L.Callback, ckpt_path: Path | None = None, **options: Any) -> Net:
    settings: dict[str, Any] = {"max_epochs": 2, "val_check_interval": BATCHES, "num_sanity_val_steps": 0}
    trainer = quiet_trainer(*callbacks, **(settings | options))
    random.seed(1)
    np.random.seed(1)
    torch.manual_seed(1)
    trainer.fit(net, Batches(BATCHES), Batches(2), ckpt_path=ckpt_path)
    return net


def weights(net: Net) -> Tensor:
    return torch.cat([parameter.detach().flatten() for parameter in net.parameters()])


@pytest.mark.parametrize(
    "options", [{"val_check_interval": 2}, {"limit_val_batches": 0}, {"num_sanity_val_steps": 2}]
)
def test_how_often_validation_runs_does_not_matter(options: dict[str, Any]) -> None:
    plain, other = fit(Net(), SeedEachStep(3)), fit(Net(), SeedEachStep(3), **options)
    assert plain.draws == other.draws
    assert torch.equal(weights(plain), weights(other))


def test_without_it_validation_does_matter() -> None:
    assert not torch.equal(weights(fit(Net())), weights(fit(Net(), val_check_interval=2)))


def test_each_step_and_each_generator_draws_anew() -> None:
    net = fit(Net(), SeedEachStep(3))
    assert len(net.draws) == 2 * BATCHES
    for generator in zip(*net.draws, strict=True):
        assert len(set(generator)) == 2 * BATCHES


@pytest.mark.parametrize("accumulate", [1, 2])
@pytest.mark.parametrize(
    ("moment", "step"),
    [
        ("training_step", 3),
        ("on_train_batch_end", 3),
        ("on_train_batch_end", BATCHES),
        ("on_validation_end", 3),
        ("on_validation_end", BATCHES),
        ("on_train_epoch_end", BATCHES),
    ],
)
@pytest.mark.filterwarnings("ignore:You're resuming from a checkpoint that ended before")
def test_resumed_anywhere_each_step_draws_what_it_would_have(
    moment: str, step: int, accumulate: int, tmp_path: Path
) -> None:
    options: dict[str, Any] = {"val_check_interval": 3, "accumulate_grad_batches": accumulate}
    whole = Net()
    whole.save_at = (moment, step, tmp_path / "at.ckpt")
    fit(whole, SeedEachStep(3), Saver(), **options)
    assert (tmp_path / "at.ckpt").exists()
    resumed = fit(Net(), SeedEachStep(3), ckpt_path=tmp_path / "at.ckpt", **options)
    assert resumed.draws == whole.draws[step:]


def test_ranks_and_stages_differ() -> None:
    callback = SeedEachStep(3)
    stages = ["step", "epoch", "val", "test"]
    seeds = {callback.seed_for(*moment) for moment in product(stages, range(8), range(500))}
    assert len(seeds) == 4 * 8 * 500
    # torch's CPU generator takes the lower half of a seed, NumPy the upper one.
    assert len({seed & 0xFFFFFFFF for seed in seeds}) > 0.999 * len(seeds)
    assert len({seed >> 32 for seed in seeds}) > 0.999 * len(seeds)
