"""LightningModules of somebody's own, for the tests of the check."""

from __future__ import annotations

from typing import Any

import lightning as L
import torch
from torch import Tensor, nn


class Own(L.LightningModule):
    """Fails where it is told to."""

    def __init__(self, fails: str = "", size: int = 0) -> None:
        super().__init__()
        self.layer, self.fails, self.size = nn.Linear(4, 3), fails, size

    def _loss(self, batch: Any) -> Tensor:
        inputs, targets = batch
        if self.fails == "eval" and not self.training:
            raise RuntimeError("no such branch")
        if self.size:
            inputs = inputs.view(self.size, 4)
        loss: Tensor = nn.functional.cross_entropy(self.layer(inputs), targets)
        return loss

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        del batch_idx
        return self._loss(batch)

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        del batch_idx
        if self.fails == "logger":
            self.logger.experiment.add_text("none", "here")  # type: ignore[union-attr]  # not before a run
        if self.fails == "trainer" and self.trainer.sanity_checking:
            return
        self.log("val/loss", self._loss(batch))

    def configure_optimizers(self) -> Any:
        return torch.optim.SGD(self.parameters(), 0.1)
