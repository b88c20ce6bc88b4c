from __future__ import annotations

from typing import final

from torch import Tensor, nn

from assay.errors import check_numbers


@final
class SimCLR(nn.Module):
    """Features of an encoder; in training, their projection by a small perceptron.

    The loss compares projections `g(f(x))`; evaluation and later use take the features `f(x)`. From Chen et
    al. 2020, "A Simple Framework for Contrastive Learning of Visual Representations", section 2.1.

    Inputs `[B, ...]`, float; outputs projections `[B, projection_size]` in training mode, else features
    `[B, num_features]`.

    Args:
        encoder: `[B, ...]` to `[B, num_features]`.
        num_features: Width of the features.
        hidden: Width of the perceptron's hidden layer.
        projection_size: Width of its output.

    Raises:
        ValueError: A width below 1.
    """

    def __init__(
        self,
        encoder: nn.Module,
        num_features: int,
        *,
        hidden: int = 128,
        projection_size: int = 64,
    ) -> None:
        super().__init__()
        check_numbers(
            "[1, inf)", num_features=num_features, hidden=hidden, projection_size=projection_size
        )
        self.encoder = encoder
        self.projection = nn.Sequential(
            nn.Linear(num_features, hidden), nn.ReLU(), nn.Linear(hidden, projection_size)
        )

    def project(self, features: Tensor) -> Tensor:
        """Map features `[B, num_features]` to projections `[B, projection_size]`."""
        projected: Tensor = self.projection(features)
        return projected

    def forward(self, inputs: Tensor) -> Tensor:
        """Map inputs `[B, ...]` to projections in training mode, else to features."""
        features: Tensor = self.encoder(inputs)
        if self.training:
            return self.project(features)
        return features
