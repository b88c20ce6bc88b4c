"""A small job for tests of single loops: a linear model, twelve samples, no part of assay but the loops."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import lightning as L
import torch
from tests.callbacks.quiet_trainer import quiet_trainer
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset
from typing_extensions import override

from assay.assemble.trainer import silence_lightning
from assay.loop.fit_loop import install

if TYPE_CHECKING:
    from pathlib import Path

INPUTS = torch.linspace(-1, 1, 36).reshape(12, 3)
TARGETS = INPUTS.sum(1, keepdim=True)


class Line(L.LightningModule):
    """Fits a plane by SGD."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.net = nn.Linear(3, 1)

    @override
    def training_step(self, batch: Any, batch_idx: int) -> Any:
        return nn.functional.mse_loss(self.net(batch[0]), batch[1])

    @override
    def configure_optimizers(self) -> Any:
        return torch.optim.SGD(self.parameters(), lr=0.1)


def batches(size: int = 2) -> DataLoader[tuple[Tensor, ...]]:
    """In their order."""
    return DataLoader(TensorDataset(INPUTS, TARGETS), size)


def fit(
    module: L.LightningModule,
    *callbacks: L.Callback,
    val: Any = None,
    train: Any = None,
    ckpt_path: Path | None = None,
    **options: Any,
) -> L.Trainer:
    """Train for an epoch, or as the options say."""
    with silence_lightning():
        trainer = quiet_trainer(*callbacks, **{"max_epochs": 1, "num_sanity_val_steps": 0, **options})
        install(trainer)
        data = batches() if train is None else train
        trainer.fit(module, data, val, ckpt_path=ckpt_path, weights_only=False)
    return trainer


def by_hand(steps: int, accumulate: int = 1) -> dict[str, Tensor]:
    """Weights after some steps of a loop that anybody would write."""
    module = Line()
    optimizer: Any = module.configure_optimizers()
    for step in range(steps):
        for batch in range(step * accumulate, (step + 1) * accumulate):
            rows = slice(2 * batch % 12, 2 * batch % 12 + 2)
            loss = nn.functional.mse_loss(module.net(INPUTS[rows]), TARGETS[rows]) / accumulate
            loss.backward()  # type: ignore[no-untyped-call]  # torch left it untyped
        optimizer.step()
        optimizer.zero_grad()
    return {name: value.detach().clone() for name, value in module.state_dict().items()}


def same_weights(module: L.LightningModule, expected: dict[str, Tensor]) -> bool:
    """Bit for bit."""
    return all(torch.equal(value, expected[name]) for name, value in module.state_dict().items())
