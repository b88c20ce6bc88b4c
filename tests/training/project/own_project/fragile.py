"""A model that breaks in the middle of training."""

from __future__ import annotations

from torch import Tensor, nn


class Fragile(nn.Module):
    def __init__(self, num_features: int, num_outputs: int, breaks_at: int) -> None:
        super().__init__()
        self.linear = nn.Linear(num_features, num_outputs)
        self.breaks_at, self.calls = breaks_at, 0

    def forward(self, inputs: Tensor) -> Tensor:
        self.calls += self.training
        if self.calls == self.breaks_at:
            raise RuntimeError(f"out of luck in step {self.breaks_at}")
        outputs: Tensor = self.linear(inputs.flatten(1))
        return outputs
