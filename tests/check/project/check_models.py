"""Models that are hard to prove without data, for the tests of the check."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class DataDependent(nn.Module):
    """Decides by the values it sees."""

    def __init__(self, num_features: int, num_outputs: int) -> None:
        super().__init__()
        self.linear = nn.Linear(num_features, num_outputs)

    def forward(self, inputs: Tensor) -> Tensor:
        outputs: Tensor = self.linear(inputs.flatten(1))
        return outputs if inputs.sum() > 0 else -outputs


class ByWayOfNumpy(nn.Module):
    """Leaves torch for a moment, where fake tensors cannot follow."""

    def __init__(self, num_features: int, num_outputs: int) -> None:
        super().__init__()
        self.linear = nn.Linear(num_features, num_outputs)

    def forward(self, inputs: Tensor) -> Tensor:
        scale = torch.from_numpy(inputs.detach().numpy().mean(axis=0, keepdims=True))
        outputs: Tensor = self.linear((inputs - scale).flatten(1))
        return outputs


class Lazy(nn.Module):
    """Takes its width from the first batch."""

    def __init__(self, num_outputs: int) -> None:
        super().__init__()
        self.linear = nn.LazyLinear(num_outputs)

    def forward(self, inputs: Tensor) -> Tensor:
        outputs: Tensor = self.linear(inputs.flatten(1))
        return outputs


class ComputesWhileMade(nn.Module):
    """Reads a value of a tensor in its constructor, which the meta device does not have."""

    def __init__(self, num_features: int, num_outputs: int) -> None:
        super().__init__()
        width = int(torch.linspace(1, num_features, 3)[1].item())
        self.layers = nn.Sequential(
            nn.Flatten(), nn.Linear(num_features, width), nn.ReLU(), nn.Linear(width, num_outputs)
        )

    def forward(self, inputs: Tensor) -> Tensor:
        outputs: Tensor = self.layers(inputs)
        return outputs


class Tied(nn.Module):
    """Uses one weight twice."""

    def __init__(self, num_features: int, num_outputs: int) -> None:
        super().__init__()
        self.first = nn.Linear(num_features, num_features)
        self.second = nn.Linear(num_features, num_features)
        self.second.weight = self.first.weight
        self.head = nn.Linear(num_features, num_outputs)

    def forward(self, inputs: Tensor) -> Tensor:
        outputs: Tensor = self.head(self.second(self.first(inputs.flatten(1))))
        return outputs


class Frozen(nn.Module):
    """Trains nothing."""

    def __init__(self, num_features: int, num_outputs: int) -> None:
        super().__init__()
        self.linear = nn.Linear(num_features, num_outputs).requires_grad_(False)

    def forward(self, inputs: Tensor) -> Tensor:
        outputs: Tensor = self.linear(inputs.flatten(1))
        return outputs


class DoublesInside(nn.Module):
    """Changes the type on its way."""

    def __init__(self, num_features: int, num_outputs: int) -> None:
        super().__init__()
        self.linear = nn.Linear(num_features, num_outputs)

    def forward(self, inputs: Tensor) -> Tensor:
        outputs: Tensor = self.linear(inputs.flatten(1).double())
        return outputs


class GivesAPair(nn.Module):
    """Returns two tensors."""

    def __init__(self, num_features: int, num_outputs: int) -> None:
        super().__init__()
        self.linear = nn.Linear(num_features, num_outputs)

    def forward(self, inputs: Tensor) -> tuple[Tensor, Tensor]:
        outputs = self.linear(inputs.flatten(1))
        return outputs, outputs


class Normed(nn.Module):
    """Cannot be trained on a single sample."""

    def __init__(self, num_features: int, num_outputs: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(num_features, 8), nn.BatchNorm1d(8), nn.Linear(8, num_outputs))

    def forward(self, inputs: Tensor) -> Tensor:
        outputs: Tensor = self.layers(inputs)
        return outputs


class ForOneBatch(nn.Module):
    """Takes batches of one size alone."""

    def __init__(self, num_features: int, num_outputs: int, size: int, *, by: str = "") -> None:
        super().__init__()
        self.linear = nn.Linear(num_features, num_outputs)
        self.size, self.by = size, by

    def forward(self, inputs: Tensor) -> Tensor:
        outputs: Tensor = self.linear(_unfollowed(inputs, self.by).view(self.size, -1))
        return outputs


class FailsInEvaluation(nn.Module):
    """Works in training alone."""

    def __init__(self, num_features: int, num_outputs: int, *, by: str = "") -> None:
        super().__init__()
        self.linear = nn.LazyLinear(num_outputs) if by == "lazy" else nn.Linear(num_features, num_outputs)
        self.by = by

    def forward(self, inputs: Tensor) -> Tensor:
        if not self.training:
            raise RuntimeError("no such branch")
        outputs: Tensor = self.linear(_unfollowed(inputs, self.by))
        return outputs


class NeedsPositiveValues(nn.Module):
    """Takes real values, and none that are made up."""

    def __init__(self, num_features: int, num_outputs: int) -> None:
        super().__init__()
        self.linear = nn.Linear(num_features, num_outputs)

    def forward(self, inputs: Tensor) -> Tensor:
        if not inputs.any():
            raise ValueError("all values are zero")
        outputs: Tensor = self.linear(inputs)
        return outputs


def _unfollowed(inputs: Tensor, by: str) -> Tensor:
    """By a way that fake tensors follow or not."""
    if by == "data" and inputs.sum() > 1e9:
        return -inputs
    return torch.from_numpy(inputs.detach().numpy()) if by == "numpy" else inputs
