"""Saved within any hook, a run of a module that logs wherever it may goes on to the same end, bit for bit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, final

import lightning as L
import pytest
import torch
from lightning.pytorch.callbacks import Checkpoint, EarlyStopping, LearningRateMonitor, ModelCheckpoint
from torch import Tensor, nn
from torch.optim.lr_scheduler import CosineAnnealingLR, ReduceLROnPlateau, StepLR
from torch.utils.data import DataLoader, TensorDataset
from typing_extensions import override

from assay.assemble.trainer import silence_lightning
from assay.callbacks.seed_each_step import SeedEachStep
from assay.checkpoint.checkpoint_file import CheckpointFile
from assay.data.core.seeded_loader import seed_loaders
from assay.logger.run_csv import RunCSV
from assay.loop.fit_loop import MovedRun, install

if TYPE_CHECKING:
    from pathlib import Path

Batch = tuple[Tensor, Tensor]
Loader = DataLoader[tuple[Tensor, ...]]
HOOKS = (
    *("on_train_start", "on_train_epoch_start", "on_train_batch_start", "on_train_batch_end"),
    *("on_validation_end", "on_train_epoch_end", "on_train_end"),
)
EPOCHS, BATCHES = 3, 6


@final
class Talkative(L.LightningModule):
    """Logs in every hook, in every way."""

    def __init__(self, schedule: str) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.3), nn.BatchNorm1d(8), nn.Linear(8, 1))
        self.schedule = schedule

    def training_step(self, batch: Batch, batch_idx: int) -> dict[str, Tensor]:
        del batch_idx
        loss = nn.functional.mse_loss(self.net(batch[0]), batch[1])
        self.log("a", loss, on_step=True, on_epoch=True)
        self.log("b", loss, on_step=False, on_epoch=True, reduce_fx="max")
        self.log("c", loss, on_step=True, on_epoch=False)
        self.log("d", loss, on_step=False, on_epoch=True, reduce_fx=torch.sum)
        return {"loss": loss, "extra": loss.detach()}

    @override
    def on_train_epoch_start(self) -> None:
        self.log("epoch_start", float(self.current_epoch))

    @override
    def on_train_batch_start(self, batch: Any, batch_idx: int) -> None:
        self.log("batch_start", float(batch_idx), on_step=True, on_epoch=True)

    @override
    def on_before_optimizer_step(self, optimizer: Any) -> None:
        self.log("optimizer_step", float(self.global_step), on_step=False, on_epoch=True)

    @override
    def on_train_batch_end(self, outputs: Any, batch: Any, batch_idx: int) -> None:
        self.log("batch_end", outputs["extra"] + batch_idx, on_step=False, on_epoch=True)

    @override
    def on_train_epoch_end(self) -> None:
        self.log("epoch_end", self.current_epoch + self.trainer.callback_metrics.get("val", torch.zeros(())))

    def validation_step(self, batch: Batch, batch_idx: int) -> None:
        self.log("val", nn.functional.mse_loss(self.net(batch[0]), batch[1]))
        self.log("val_step", float(batch_idx), on_step=True, on_epoch=True)

    @override
    def on_validation_epoch_end(self) -> None:
        self.log("val_end", float(self.global_step))

    @override
    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.Adam(self.parameters(), lr=0.05)
        by = {
            "cosine": lambda: CosineAnnealingLR(optimizer, 5),
            "step": lambda: {"scheduler": StepLR(optimizer, 3), "interval": "step", "frequency": 2},
            "plateau": lambda: {
                "scheduler": ReduceLROnPlateau(optimizer, patience=0, threshold=0.5),
                "monitor": "val",
            },
            "plateau_step": lambda: {
                "scheduler": ReduceLROnPlateau(optimizer, patience=1, threshold=0.5),
                "monitor": "a_step",
                "interval": "step",
            },
        }
        made: Any = by[self.schedule]
        return {"optimizer": optimizer, "lr_scheduler": made()}


@final
class Rows(L.LightningDataModule):
    """Rows of four numbers, and their sum."""

    @override
    def setup(self, stage: str) -> None:
        inputs = torch.randn(30, 4, generator=torch.Generator().manual_seed(1))
        self.rows = TensorDataset(inputs, inputs.sum(1, keepdim=True))

    @override
    def train_dataloader(self) -> Loader:
        return DataLoader(self.rows, 5, shuffle=True)

    @override
    def val_dataloader(self) -> Loader:
        return DataLoader(self.rows, 10)


class SavedError(Exception):
    """Ends a run once it has saved."""


@final
class Save(Checkpoint):
    """Saves within a hook, the n-th time it is called, and ends the run."""

    def __init__(self, hook: str, count: int, path: Path) -> None:
        def called(trainer: L.Trainer, *_: Any) -> None:
            self._left -= 1
            if not self._left:
                trainer.save_checkpoint(path)
                raise SavedError

        self._left = count
        setattr(self, hook, called)


CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "cosine": ("cosine", {}),
    "plateau": ("plateau", {"val_check_interval": 2}),
    "half": ("step", {"val_check_interval": 0.5, "accumulate_grad_batches": 2}),
    "accumulating": ("plateau_step", {"accumulate_grad_batches": 4}),
    "by_batches": ("cosine", {"val_check_interval": 4, "check_val_every_n_epoch": None}),
    "second_epoch": ("step", {"check_val_every_n_epoch": 2}),
}
USUAL = (("accumulating", "on_train_batch_end", BATCHES + 3), ("plateau", "on_validation_end", 4))


def fit(folder: Path, name: str, save: Save | None = None, ckpt: Path | None = None) -> dict[str, Any] | None:
    """What a run ends with; None where `save` has ended it."""
    schedule, options = CASES[name]
    L.seed_everything(3, verbose=False)
    module, data = Talkative(schedule), Rows()
    seed_loaders(data, 3)
    kept = ModelCheckpoint(folder / "kept", "{step}", "val", save_top_k=2)
    stop = EarlyStopping("val", patience=3, check_on_train_epoch_end=False)
    last = ModelCheckpoint(folder / "kept", "last-{step}", every_n_train_steps=4)
    callbacks = [MovedRun(), SeedEachStep(3), stop, LearningRateMonitor(), kept, last]
    callbacks += [save] if save else []
    with silence_lightning():
        trainer = L.Trainer(
            callbacks=callbacks,
            max_epochs=EPOCHS,
            accelerator="cpu",
            logger=[RunCSV(folder / "metrics.csv")],
            **options,
            plugins=[CheckpointFile()],
            log_every_n_steps=2,
            num_sanity_val_steps=0,
            use_distributed_sampler=False,
            enable_progress_bar=False,
            enable_model_summary=False,
        )
        install(trainer)
        try:
            trainer.fit(module, datamodule=data, ckpt_path=ckpt, weights_only=True)
        except SavedError:
            return None
    state = module.state_dict()
    return {
        "weights": {key: value.tolist() for key, value in state.items()},
        "rows": (folder / "metrics.csv").read_text(),
        "metrics": {key: float(value) for key, value in trainer.callback_metrics.items()},
        "kept": sorted(path.name for path in (folder / "kept").glob("*.ckpt")),
        "scores": sorted(map(float, kept.best_k_models.values())),
        "waited": (stop.wait_count, float(stop.best_score)),
        "at": (trainer.current_epoch, trainer.global_step, trainer.optimizers[0].param_groups[0]["lr"]),
    }


def check(folder: Path, name: str, hook: str, count: int, whole: dict[str, Any] | None) -> bool:
    """Whether there is such a point; it is looked at."""
    folder.mkdir()
    path = folder / "saved.ckpt"
    if fit(folder, name, Save(hook, count, path)) is not None:
        return False
    again = fit(folder, name, ckpt=path)
    assert again == whole, (name, hook, count)
    return True


@pytest.mark.parametrize(("name", "hook", "count"), USUAL)
def test_a_run_saved_here_ends_the_same(tmp_path: Path, name: str, hook: str, count: int) -> None:
    (tmp_path / "whole").mkdir()
    whole = fit(tmp_path / "whole", name)
    assert check(tmp_path / "saved", name, hook, count, whole)


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", CASES)
def test_a_run_saved_anywhere_ends_the_same(tmp_path: Path, name: str) -> None:
    (tmp_path / "whole").mkdir()
    whole = fit(tmp_path / "whole", name)
    points = 0
    for hook in HOOKS:
        count = 1
        while check(tmp_path / f"{hook} {count}", name, hook, count, whole):
            count += 1
        points += count - 1
    assert points > 2 * BATCHES
