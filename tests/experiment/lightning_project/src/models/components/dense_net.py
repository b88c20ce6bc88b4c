"""A network of one hidden layer."""

from torch import Tensor, nn


class DenseNet(nn.Module):
    """Flattens its inputs."""

    def __init__(self, input_size: int = 64, hidden: int = 32, output_size: int = 10) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(input_size, hidden), nn.BatchNorm1d(hidden), nn.ReLU(), nn.Linear(hidden, output_size)
        )

    def forward(self, inputs: Tensor) -> Tensor:
        outputs: Tensor = self.layers(inputs.flatten(1))
        return outputs
