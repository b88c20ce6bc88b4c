from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any, final

import numpy as np
import torch
from lightning.pytorch.callbacks import Callback
from typing_extensions import override

from assay.errors import check_numbers
from assay.splitmix import splitmix64

if TYPE_CHECKING:
    import lightning as L

_STAGES = {"step": 1, "epoch": 2, "val": 3, "test": 4}


@final
class SeedEachStep(Callback):
    """Seeds torch (CPU and accelerator), NumPy's global generator and `random` before each training step."""

    # Completed batches are counted: optimizer steps would not draw anew for each accumulated batch, and
    # Lightning's `total.ready` counts a batch twice if a checkpoint was saved in the middle of it.

    def __init__(self, seed: int) -> None:
        check_numbers("[0, inf)", seed=seed)
        self.seed = seed
        self._streams: dict[tuple[str, int], int] = {}

    def seed_for(self, stage: str, rank: int, index: int) -> int:
        """Return the 64-bit seed of a step, epoch or stage."""
        stream = self._streams.get((stage, rank))
        if stream is None:
            stream = splitmix64(splitmix64(splitmix64(self.seed) ^ _STAGES[stage]) ^ rank)
            self._streams[(stage, rank)] = stream
        return splitmix64(stream ^ index)

    @override
    def on_train_epoch_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self._apply("epoch", trainer, pl_module, trainer.current_epoch)

    @override
    def on_train_batch_start(
        self, trainer: L.Trainer, pl_module: L.LightningModule, batch: Any, batch_idx: int
    ) -> None:
        self._apply("step", trainer, pl_module, _batches_trained(trainer))

    @override
    def on_validation_epoch_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self._apply("val", trainer, pl_module, _batches_trained(trainer))

    @override
    def on_test_epoch_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self._apply("test", trainer, pl_module, 0)

    def _apply(
        self, stage: str, trainer: L.Trainer, pl_module: L.LightningModule, index: int
    ) -> None:
        seed = self.seed_for(stage, trainer.global_rank, index)
        # Seeded directly: torch.manual_seed visits every kind of device and takes 0.1 ms.
        torch.default_generator.manual_seed(seed)
        np.random.seed(seed >> 32)
        random.seed(seed)
        device = pl_module.device
        if device.type != "cpu":
            torch.get_device_module(device).manual_seed(seed)


def _batches_trained(trainer: L.Trainer) -> int:
    return trainer.fit_loop.epoch_loop.batch_progress.total.completed
