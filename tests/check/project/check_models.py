"""Models that are hard to prove without data, for the tests of the check."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn


class _Linear(nn.Module):
    def __init__(self, num_features: int, num_outputs: int) -> None:
        super().__init__()
        self.linear = nn.Linear(num_features, num_outputs)

    def forward(self, inputs: Tensor) -> Any:
        return self.linear(inputs)


class DataDependent(_Linear):
    """Decides by the values it sees."""

    def forward(self, inputs: Tensor) -> Any:
        return self.linear(inputs) if inputs.sum() > 0 else -self.linear(inputs)


class NeedsPositiveValues(_Linear):
    """Takes real values, and none that are made up."""

    def forward(self, inputs: Tensor) -> Any:
        if not inputs.any():
            raise ValueError("all values are zero")
        return self.linear(inputs)


class ByWayOfNumpy(_Linear):
    """Leaves torch for a moment, where fake tensors cannot follow."""

    def forward(self, inputs: Tensor) -> Any:
        return self.linear(inputs - torch.from_numpy(inputs.detach().numpy().mean(axis=0, keepdims=True)))


class DoublesInside(_Linear):
    """Changes the type on its way."""

    def forward(self, inputs: Tensor) -> Any:
        return self.linear(inputs.double())


class GivesAPair(_Linear):
    """Returns two tensors."""

    def forward(self, inputs: Tensor) -> Any:
        return self.linear(inputs), self.linear(inputs)


class Frozen(_Linear):
    """Trains nothing."""

    def __init__(self, num_features: int, num_outputs: int) -> None:
        super().__init__(num_features, num_outputs)
        self.requires_grad_(False)


class Lazy(_Linear):
    """Takes its width from the first batch."""

    def __init__(self, num_features: int, num_outputs: int) -> None:
        super().__init__(num_features, num_outputs)
        self.linear = nn.LazyLinear(num_outputs)


class ComputesWhileMade(_Linear):
    """Reads a value of a tensor in its constructor, which the meta device does not have."""

    def __init__(self, num_features: int, num_outputs: int) -> None:
        width = int(torch.linspace(1, num_features, 3)[1].item())
        super().__init__(width, num_outputs)
        self.first = nn.Linear(num_features, width)

    def forward(self, inputs: Tensor) -> Any:
        return self.linear(self.first(inputs))


class Tied(_Linear):
    """Uses one weight twice."""

    def __init__(self, num_features: int, num_outputs: int) -> None:
        super().__init__(num_features, num_outputs)
        self.first = nn.Linear(num_features, num_features)
        self.second = nn.Linear(num_features, num_features)
        self.second.weight = self.first.weight

    def forward(self, inputs: Tensor) -> Any:
        return self.linear(self.second(self.first(inputs)))


class Normed(_Linear):
    """Cannot be trained on a single sample."""

    def __init__(self, num_features: int, num_outputs: int) -> None:
        super().__init__(num_features, num_outputs)
        self.norm = nn.BatchNorm1d(num_features)

    def forward(self, inputs: Tensor) -> Any:
        return self.linear(self.norm(inputs))


class ForOneBatch(_Linear):
    """Takes batches of one size alone."""

    def __init__(self, num_features: int, num_outputs: int, size: int, *, by: str = "") -> None:
        super().__init__(num_features, num_outputs)
        self.size, self.by = size, by

    def forward(self, inputs: Tensor) -> Any:
        return self.linear(_unfollowed(inputs, self.by).view(self.size, -1))


class FailsInEvaluation(_Linear):
    """Works in training alone."""

    def __init__(self, num_features: int, num_outputs: int, *, by: str = "") -> None:
        super().__init__(num_features, num_outputs)
        self.linear = nn.LazyLinear(num_outputs) if by == "lazy" else self.linear
        self.by = by

    def forward(self, inputs: Tensor) -> Any:
        if not self.training:
            raise RuntimeError("no such branch")
        return self.linear(_unfollowed(inputs, self.by))


def _unfollowed(inputs: Tensor, by: str) -> Tensor:
    """By a way that fake tensors follow or not."""
    if by == "data" and inputs.sum() > 1e9:
        return -inputs
    return torch.from_numpy(inputs.detach().numpy()) if by == "numpy" else inputs


class ChoosesItsRate(torch.optim.Optimizer):
    """Has no learning rate and calls the closure without gradients, as Adafactor of transformers does."""

    def __init__(self, params: Any, lr: float | None = None) -> None:
        super().__init__(params, {"lr": lr})

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        loss = closure()
        for group in self.param_groups:
            for parameter in group["params"]:
                parameter.sub_(0.1 * parameter.grad)
        return loss
