"""A signal that comes at a moment outside of training steps."""

from __future__ import annotations

import os
import signal
import time
from typing import TYPE_CHECKING, Any

from lightning.pytorch.callbacks import Callback

from assay.loop.stop_on_signal import StopOnSignal

if TYPE_CHECKING:
    import lightning as L


class Telling(Callback):
    """Has the second rank send SIGTERM.

    Args:
        moment: Name of a hook, with the stage in `setup fit` and `setup test`; None for never.
        to_launcher: To the process that has started the ranks; else to the rank itself.
    """

    def __init__(self, moment: str | None = None, to_launcher: bool = True) -> None:
        self.moment, self.to_launcher = moment, to_launcher

    def _reach(self, moment: str, trainer: L.Trainer) -> None:
        if moment == self.moment and trainer.global_rank == 1:
            os.kill(os.getppid() if self.to_launcher else os.getpid(), signal.SIGTERM)
            [stop] = [one for one in trainer.callbacks if isinstance(one, StopOnSignal)]  # type: ignore[attr-defined]  # a plain attribute
            while not stop.received:  # the launcher tells the first rank, and then this one
                time.sleep(0.01)

    def setup(self, trainer: L.Trainer, pl_module: L.LightningModule, stage: str) -> None:
        del pl_module
        self._reach(f"setup {getattr(stage, 'value', stage)}", trainer)

    def on_fit_start(self, trainer: L.Trainer, *_: Any) -> None:
        self._reach("fit_start", trainer)

    def on_train_start(self, trainer: L.Trainer, *_: Any) -> None:
        self._reach("train_start", trainer)

    def on_train_end(self, trainer: L.Trainer, *_: Any) -> None:
        self._reach("train_end", trainer)
