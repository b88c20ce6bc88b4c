"""torch asks its own runtime, and not NVML, whether there is a GPU while a run computes."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final, final

from lightning.pytorch.callbacks import Callback
from typing_extensions import override

if TYPE_CHECKING:
    import lightning as L

VARIABLE: Final = "PYTORCH_NVML_BASED_CUDA_CHECK"


@final
class WithoutNvmlCheck(Callback):
    """Takes `PYTORCH_NVML_BASED_CUDA_CHECK` away from when a run is set up until it ends.

    Lightning sets the variable when it is imported, so that a process can ask for GPUs and be forked
    afterwards: torch then asks NVML in place of the CUDA runtime, which no fork survives. torch's optimizers
    ask in each step, and each time NVML is loaded anew, which takes as long as a small step or longer. Each
    rank is set up after it was forked or started, with its device settled, so nothing needs the variable
    until the run ends.
    """

    def __init__(self) -> None:
        self._before: str | None = None

    @override
    def setup(self, trainer: L.Trainer, pl_module: L.LightningModule, stage: str) -> None:
        """Take the variable away."""
        self._before = os.environ.pop(VARIABLE, self._before)

    @override
    def teardown(self, trainer: L.Trainer, pl_module: L.LightningModule, stage: str) -> None:
        """Put it back as it was."""
        if self._before is not None:
            os.environ[VARIABLE], self._before = self._before, None

    @override
    def on_exception(
        self, trainer: L.Trainer, pl_module: L.LightningModule, exception: BaseException
    ) -> None:
        """Put it back as it was: Lightning tears no callback down after an exception."""
        self.teardown(trainer, pl_module, "")
