"""One wide hidden layer of cosines."""

import torch
from torch import Tensor, nn


class Wide(nn.Module):
    """Cosine features of a linear map, then a linear map (Rahimi and Recht, "Random Features", NIPS 2007).

    Args:
        num_features: Values of one sample.
        num_outputs: Values to return.
        width: Number of cosines.
    """

    def __init__(self, num_features: int, num_outputs: int, width: int) -> None:
        super().__init__()
        self.inner = nn.Linear(num_features, width)
        self.outer = nn.Linear(width, num_outputs)

    def forward(self, inputs: Tensor) -> Tensor:
        """Outputs `[B, num_outputs]` of inputs `[B, ...]`."""
        return self.outer(torch.cos(self.inner(inputs.flatten(1))))
