"""Somebody's own LightningModule: two optimizers, stepped by hand."""

from __future__ import annotations

from typing import Any

import lightning as L
import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits
from typing_extensions import override


class Gan(L.LightningModule):
    def __init__(self, num_features: int, latent: int) -> None:
        super().__init__()
        self.automatic_optimization = False
        self.latent = latent
        self.generator = nn.Sequential(nn.Linear(latent, 32), nn.ReLU(), nn.Linear(32, num_features))
        self.critic = nn.Sequential(nn.Linear(num_features, 32), nn.ReLU(), nn.Linear(32, 1))

    @override
    def training_step(self, batch: Any, batch_idx: int) -> None:
        real = batch[0].flatten(1)
        steps_generator, steps_critic = self.optimizers()  # type: ignore[attr-defined]  # a list of the two below
        fake = self.generator(torch.randn(len(real), self.latent, device=self.device))
        critic_loss = self._judge(real, 1.0) + self._judge(fake.detach(), 0.0)
        self._step(steps_critic, critic_loss)
        self._step(steps_generator, self._judge(fake, 1.0))
        self.log("train/critic_loss", critic_loss)

    @override
    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.log("val/loss", self._judge(batch[0].flatten(1), 1.0))

    @override
    def test_step(self, batch: Any, batch_idx: int) -> None:
        self.log("test/loss", self._judge(batch[0].flatten(1), 1.0))

    def _judge(self, samples: Tensor, verdict: float) -> Tensor:
        logits = self.critic(samples)
        return binary_cross_entropy_with_logits(logits, torch.full_like(logits, verdict))

    def _step(self, optimizer: Any, loss: Tensor) -> None:
        optimizer.zero_grad()
        self.manual_backward(loss)
        optimizer.step()

    @override
    def configure_optimizers(self) -> list[torch.optim.Optimizer]:
        return [
            torch.optim.Adam(self.generator.parameters(), lr=1e-3),
            torch.optim.Adam(self.critic.parameters(), lr=1e-2),
        ]
