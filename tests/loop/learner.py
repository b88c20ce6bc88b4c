"""The module and the data that the parity suite trains."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import lightning as L
import torch
from tests.loop.steady_clock import CLOCK
from torch import Tensor, nn
from torch.utils.data import DataLoader, IterableDataset, TensorDataset
from typing_extensions import override

NUM_TRAIN, NUM_VAL, BATCH = 10, 4, 2


class Learner(L.LightningModule):
    """A small net in which the order of random numbers, modes and steps shows in the weights."""

    def __init__(
        self,
        optimization: str = "automatic",
        scheduler: str = "none",
        returns: str = "loss",
        logs: str = "step",
    ) -> None:
        super().__init__()
        self.backbone = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Dropout(0.2))
        self.head = nn.Linear(6, 3)
        self.lr = 0.05
        self.optimization, self.scheduler, self.returns, self.logs = optimization, scheduler, returns, logs
        self.automatic_optimization = not optimization.startswith("manual")

    @override
    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.head(self.backbone(x.to(self.head.weight.dtype)))
        return out

    def _loss(self, batch: Any) -> Tensor:
        CLOCK.now += 1
        if isinstance(batch, Mapping):
            return torch.stack([self._loss(one) for one in batch.values()]).mean()
        x, y = batch
        return nn.functional.cross_entropy(self(x), y)

    @override
    def training_step(self, batch: Any, batch_idx: int) -> Any:
        if self.automatic_optimization:
            return self._automatic(batch, batch_idx)
        return self._manual(batch, batch_idx)

    def _automatic(self, batch: Any, batch_idx: int) -> Any:
        loss = self._loss(batch)
        self._tell("train", loss)
        if self.returns == "none" or (self.returns == "sometimes none" and batch_idx % 3 == 1):
            return None
        if self.returns == "nan" and batch_idx % 4 == 2:
            loss = loss * float("nan")
        return {"loss": loss, "extra": loss.detach() + 1} if self.returns == "dict" else loss

    def _manual(self, batch: Any, batch_idx: int) -> Any:
        optimizers: Any = self.optimizers()
        for optimizer in optimizers if isinstance(optimizers, list) else [optimizers]:
            self.toggle_optimizer(optimizer)
            loss = self._loss(batch)
            self._tell("train", loss)
            self.manual_backward(loss)
            if batch_idx % self.trainer.accumulate_grad_batches == 0:
                self.clip_gradients(optimizer, gradient_clip_val=0.5, gradient_clip_algorithm="norm")
                optimizer.step()
                optimizer.zero_grad()
            self.untoggle_optimizer(optimizer)
        schedulers: Any = self.lr_schedulers()
        for one in schedulers if isinstance(schedulers, list) else [schedulers] if schedulers else []:
            if self.trainer.is_last_batch and not hasattr(one, "patience"):
                one.step()
        return {"loss": loss.detach()} if self.returns == "dict" else None

    def _tell(self, stage: str, loss: Tensor) -> None:
        ways: dict[str, dict[str, Any]] = {
            "step": {"on_step": True},
            "epoch": {"on_step": False, "on_epoch": True, "reduce_fx": "max"},
            "none": {},
            "synced": {"on_step": True, "on_epoch": True, "sync_dist": True},
        }
        how = ways.get(self.logs, {"on_step": True, "on_epoch": True, "prog_bar": True})
        if how:
            self.log(f"{stage}/loss", loss, batch_size=BATCH, **how)
        if stage == "train":
            self.log("train/now", loss.detach().float())
        self.log(f"{stage}/seen", loss.detach().float(), on_step=False, on_epoch=True, batch_size=BATCH)

    @override
    def on_train_batch_start(self, batch: Any, batch_idx: int) -> int | None:
        return -1 if self.returns == "skip" and batch_idx == 4 and self.current_epoch % 2 == 0 else None

    @override
    def validation_step(self, batch: Any, batch_idx: int, dataloader_idx: int = 0) -> Any:
        loss = self._loss(batch)
        self._tell("val", loss)
        return {"loss": loss, "index": batch_idx} if self.returns == "dict" else loss

    @override
    def test_step(self, batch: Any, batch_idx: int, dataloader_idx: int = 0) -> Any:
        self._tell("test", self._loss(batch))

    @override
    def predict_step(self, batch: Any, batch_idx: int, dataloader_idx: int = 0) -> Any:
        CLOCK.now += 1
        return self(batch[0])

    @override
    def configure_optimizers(self) -> Any:
        if self.optimization == "lbfgs":
            optimizers: list[Any] = [torch.optim.LBFGS(self.parameters(), lr=self.lr, max_iter=3)]
        elif self.optimization == "manual, two":
            optimizers = [
                torch.optim.SGD(self.backbone.parameters(), lr=self.lr),
                torch.optim.AdamW(self.head.parameters(), lr=self.lr),
            ]
        else:
            optimizers = [torch.optim.AdamW(self.parameters(), lr=self.lr)]
        if self.scheduler == "none":
            return optimizers
        every, _, frequency = self.scheduler.removeprefix("plateau ").partition(" ")
        config: dict[str, Any] = {"interval": every, "frequency": int(frequency or 1)}
        if self.scheduler.startswith("plateau"):
            scheduler: Any = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizers[0], patience=0, factor=0.5)
            config["monitor"] = {"step": "train/now", "epoch": "val/seen"}[every]
            config["strict"] = False
        else:
            scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizers[0], 0.7)
        return optimizers, [{"scheduler": scheduler, **config}]


class NoIndex(Learner):
    """Its step takes the batch alone."""

    @override
    def training_step(self, batch: Any) -> Any:  # type: ignore[override]
        return super().training_step(batch, self.trainer.fit_loop.batch_idx)

    @override
    def validation_step(self, batch: Any) -> Any:  # type: ignore[override]
        return super().validation_step(batch, 0)


class Stream(IterableDataset[Any]):
    """Samples without a length."""

    def __init__(self, data: TensorDataset) -> None:
        self.data = data

    def __iter__(self) -> Iterator[Any]:
        return (self.data[index] for index in range(len(self.data)))


class Data(L.LightningDataModule):
    """Random samples; `kind` says in what loaders."""

    def __init__(self, kind: str = "one") -> None:
        super().__init__()
        self.kind = kind
        self.batch_size = BATCH
        self.random = torch.Generator().manual_seed(1)

    def _loader(self, num: int, seed: int, shuffle: bool = False) -> DataLoader[Any]:
        num *= self.trainer.world_size if self.trainer else 1
        random = torch.Generator().manual_seed(seed)
        data = TensorDataset(torch.randn(num, 4, generator=random), torch.arange(num) % 3)
        if self.kind == "stream":
            return DataLoader(Stream(data), batch_size=self.batch_size)
        return DataLoader(
            data, batch_size=self.batch_size, shuffle=shuffle, generator=self.random if shuffle else None
        )

    @override
    def train_dataloader(self) -> Any:
        loader = self._loader(NUM_TRAIN, 1, shuffle=True)
        return {"a": loader, "b": self._loader(6, 2)} if "two" in self.kind else loader

    @override
    def val_dataloader(self) -> Any:
        loader = self._loader(NUM_VAL, 3)
        return [loader, self._loader(2, 4)] if "two" in self.kind else loader

    @override
    def test_dataloader(self) -> Any:
        return self.val_dataloader()

    @override
    def predict_dataloader(self) -> Any:
        return self._loader(NUM_VAL, 5)
