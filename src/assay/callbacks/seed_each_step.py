"""Randomness as a pure function of the seed, the rank and the step."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any, Final, final

import numpy as np
import torch
from lightning.pytorch.callbacks import Callback
from typing_extensions import override

from assay.splitmix import splitmix64

if TYPE_CHECKING:
    import lightning as L

_STAGES: Final = {"step": 1, "epoch": 2, "val": 3, "test": 4, "predict": 5}


@final
class SeedEachStep(Callback):
    """Seeds torch (CPU and accelerator), NumPy's global generator and `random` before each training step.

    What a step draws (dropout, mixup, a random crop) then depends on (seed, rank, number of batches trained)
    and on nothing that happened to run before: not on how often validation ran, not on whether the run was
    resumed. No generator's state needs saving. Each training epoch and each validation, test and prediction
    epoch starts from a seed of its own.

    Batches are counted, not optimizer steps, so that gradient accumulation draws anew for each batch. The
    count is that of *completed* batches: Lightning's `total.ready` counts a batch twice if a checkpoint was
    saved in the middle of it.

    What a data set draws while it loads a sample happens before the step and is the data loader's to seed.

    Args:
        seed: The run's seed.

    Raises:
        ValueError: If the seed is negative.
    """

    def __init__(self, seed: int) -> None:
        if seed < 0:
            raise ValueError(f"seed={seed} is negative; give such as seed=0")
        self.seed = seed
        self._streams: dict[tuple[str, int], int] = {}

    def seed_for(self, stage: str, rank: int, index: int) -> int:
        """The 64-bit seed of a moment of the run.

        Args:
            stage: `step`, `epoch`, `val`, `test` or `predict`.
            rank: Global rank of the process.
            index: Batches trained so far, or the epoch for the stage `epoch`.

        Returns:
            A number in [0, 2^64), different for every (stage, rank, index) to all practical ends.

        >>> SeedEachStep(0).seed_for("step", 0, 7) == SeedEachStep(0).seed_for("step", 0, 7)
        True
        >>> SeedEachStep(0).seed_for("step", 0, 7) == SeedEachStep(0).seed_for("step", 1, 7)
        False
        """
        stream = self._streams.get((stage, rank))
        if stream is None:
            stream = splitmix64(splitmix64(splitmix64(self.seed) ^ _STAGES[stage]) ^ rank)
            self._streams[(stage, rank)] = stream
        return splitmix64(stream ^ index)

    @override
    def on_train_epoch_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Seed what an epoch draws before its first step, such as a stock DataLoader's shuffle."""
        self._apply("epoch", trainer, pl_module, trainer.current_epoch)

    @override
    def on_train_batch_start(
        self, trainer: L.Trainer, pl_module: L.LightningModule, batch: Any, batch_idx: int
    ) -> None:
        """Seed a training step."""
        self._apply("step", trainer, pl_module, _batches_trained(trainer))

    @override
    def on_validation_epoch_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Seed a validation epoch."""
        self._apply("val", trainer, pl_module, _batches_trained(trainer))

    @override
    def on_test_epoch_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Seed a test epoch, the same after training and where weights are tested again."""
        self._apply("test", trainer, pl_module, 0)

    @override
    def on_predict_epoch_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Seed a prediction epoch."""
        self._apply("predict", trainer, pl_module, _batches_trained(trainer))

    def _apply(self, stage: str, trainer: L.Trainer, pl_module: L.LightningModule, index: int) -> None:
        seed = self.seed_for(stage, trainer.global_rank, index)
        # The generators themselves: torch.manual_seed asks every kind of device and takes 0.1 ms.
        torch.default_generator.manual_seed(seed)
        np.random.seed(seed >> 32)
        random.seed(seed)
        device = pl_module.device
        if device.type != "cpu":
            torch.get_device_module(device).manual_seed(seed)


def _batches_trained(trainer: L.Trainer) -> int:
    return trainer.fit_loop.epoch_loop.batch_progress.total.completed
