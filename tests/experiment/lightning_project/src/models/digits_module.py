"""A LightningModule that is given its network, and its optimizer and scheduler as partials."""

from typing import Any

import torch
from lightning import LightningModule
from torch import Tensor
from torchmetrics import MaxMetric
from torchmetrics.classification import MulticlassAccuracy


class DigitsLitModule(LightningModule):
    """Annotated as usual: by what becomes of the partials, not by what is given."""

    def __init__(
        self,
        net: torch.nn.Module,
        optimizer: torch.optim.Optimizer,
        scheduler: torch.optim.lr_scheduler.LRScheduler,
        compile: bool = False,
    ) -> None:
        super().__init__()
        self.save_hyperparameters()
        self.net = net
        self.criterion = torch.nn.CrossEntropyLoss()
        self.val_acc = MulticlassAccuracy(10)
        self.val_acc_best = MaxMetric()
        self.test_acc = MulticlassAccuracy(10)

    def forward(self, inputs: Tensor) -> Tensor:
        outputs: Tensor = self.net(inputs)
        return outputs

    def on_train_start(self) -> None:
        if self.trainer.current_epoch == 0:
            self.val_acc_best.reset()

    def training_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> Tensor:
        inputs, targets = batch
        loss: Tensor = self.criterion(self(inputs), targets)
        self.log("train/loss", loss, on_step=False, on_epoch=True, prog_bar=True)
        return loss

    def validation_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> None:
        inputs, targets = batch
        outputs = self(inputs)
        self.val_acc(outputs, targets)
        self.log("val/loss", self.criterion(outputs, targets), prog_bar=True)
        self.log("val/acc", self.val_acc, on_step=False, on_epoch=True, prog_bar=True)

    def on_validation_epoch_end(self) -> None:
        self.val_acc_best(self.val_acc.compute())
        self.log("val/acc_best", self.val_acc_best.compute(), sync_dist=True)

    def test_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> None:
        inputs, targets = batch
        self.test_acc(self(inputs), targets)
        self.log("test/acc", self.test_acc, on_step=False, on_epoch=True)

    def setup(self, stage: str) -> None:
        if self.hparams["compile"] and stage == "fit":
            self.net.compile()

    def configure_optimizers(self) -> Any:
        optimizer = self.hparams["optimizer"](params=self.parameters())
        if self.hparams["scheduler"] is None:
            return {"optimizer": optimizer}
        scheduler = self.hparams["scheduler"](optimizer=optimizer)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "monitor": "val/loss"}}
