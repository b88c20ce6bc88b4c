"""A model with a setting that is known to have no effect but noise."""

import torch
from torch import Tensor, nn


class Salted(nn.Module):
    def __init__(self, num_features: int, num_outputs: int, salt: int = 0) -> None:
        super().__init__()
        torch.rand(100 * salt + 1)
        self.linear = nn.Linear(num_features, num_outputs)

    def forward(self, inputs: Tensor) -> Tensor:
        outputs: Tensor = self.linear(inputs.flatten(1))
        return outputs
