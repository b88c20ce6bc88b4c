"""A process that dies, as one does that runs out of memory."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING, Any

from lightning.pytorch.callbacks import Checkpoint

if TYPE_CHECKING:
    import lightning as L


class Dying(Checkpoint):
    """Kills the second rank after a batch, once the checkpoints of that step are saved.

    Args:
        batch: Counted from 1; None for never.
    """

    def __init__(self, batch: int | None = None) -> None:
        self.batch = batch

    def on_train_batch_end(self, trainer: L.Trainer, *_: Any) -> None:
        done = trainer.fit_loop.epoch_loop.total_batch_idx + 1
        if done == self.batch and trainer.global_rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)
