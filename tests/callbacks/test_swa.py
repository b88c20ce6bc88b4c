"""SWA against the mean by hand, and resumed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import lightning as L
import pytest
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from tests.callbacks.quiet_trainer import quiet_trainer
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset
from typing_extensions import override

from assay.callbacks.swa import SWA

if TYPE_CHECKING:
    from pathlib import Path

# Lightning's hints on what a test does on purpose.
pytestmark = [
    pytest.mark.filterwarnings("ignore:.*does not have many workers"),
    pytest.mark.filterwarnings("ignore:.*LeafSpec.* is deprecated"),
    pytest.mark.filterwarnings("ignore:Checkpoint directory"),
    pytest.mark.filterwarnings("ignore:Be aware that when using `ckpt_path`"),
]


class Net(L.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 1))

    @override
    def training_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> Tensor:
        return nn.functional.mse_loss(self.model(batch[0]), batch[1])

    @override
    def validation_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> None:
        """Nothing to log."""

    @override
    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.1)


def copy(module: nn.Module) -> dict[str, Tensor]:
    return {name: value.clone() for name, value in module.state_dict().items()}


class Stop(L.Callback):
    def __init__(self, after: int) -> None:
        self.after = after

    @override
    def on_train_epoch_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        trainer.should_stop = trainer.current_epoch + 1 == self.after


def fit(
    folder: Path, epochs: int, resume: Path | None = None, stop_after: int = 0, **settings: Any
) -> tuple[Net, SWA, L.Trainer]:
    inputs = torch.randn(32, 3, generator=torch.Generator().manual_seed(0))
    data = TensorDataset(inputs, inputs.sum(1, keepdim=True))
    module, swa = Net(), SWA(**settings)
    last = ModelCheckpoint(dirpath=folder, filename="last", enable_version_counter=False)
    trainer = quiet_trainer(
        swa, last, Stop(stop_after), max_epochs=epochs, enable_checkpointing=True, num_sanity_val_steps=0
    )
    loaders = DataLoader(data, batch_size=8), DataLoader(data, batch_size=32)
    trainer.fit(module, *loaders, ckpt_path=resume, weights_only=True)
    return module, swa, trainer


@pytest.mark.parametrize("broken_off", [1, 3])
def test_goes_on_where_it_was_broken_off(tmp_path: Path, broken_off: int) -> None:
    whole, _, _ = fit(tmp_path / "whole", epochs=5, start_fraction=0.4)
    fit(tmp_path / "part", epochs=5, stop_after=broken_off, start_fraction=0.4)
    resumed, swa, _ = fit(
        tmp_path / "part", epochs=5, resume=tmp_path / "part" / "last.ckpt", start_fraction=0.4
    )
    assert swa.count == 3
    for name, value in copy(whole).items():
        assert torch.equal(copy(resumed)[name], value)


@pytest.mark.parametrize("start", [-0.1, 1.0])
def test_refuses_a_start_that_is_none(start: float) -> None:
    with pytest.raises(ValueError, match="expected a number in"):
        SWA(start)
