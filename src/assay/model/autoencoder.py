"""An autoencoder of fully connected layers."""

from __future__ import annotations

import logging
import math
from typing import TYPE_CHECKING, final

from torch import Tensor, nn

from assay.errors import check_numbers
from assay.model.mlp import MLP

if TYPE_CHECKING:
    from collections.abc import Sequence

_log = logging.getLogger("assay")


@final
class Autoencoder(nn.Module):
    """A perceptron that encodes inputs as latent vectors, and one that decodes them.

    Inputs `[B, *input_shape]`, float; outputs of the same shape. From Hinton and Salakhutdinov 2006,
    "Reducing the Dimensionality of Data with Neural Networks". Without hidden layers it is at best as
    good as PCA.

    Args:
        input_shape: Shape of one sample.
        latent_size: Width of the latent vector.
        hidden: Widths of the encoder's hidden layers; the decoder has them in reverse.
        activation: As for `assay.model.mlp.MLP`.
        dropout: As for `assay.model.mlp.MLP`.
        norm: As for `assay.model.mlp.MLP`.

    Raises:
        ValueError: As for `assay.model.mlp.MLP`, or `latent_size` is below 1.
    """

    def __init__(
        self,
        input_shape: Sequence[int],
        latent_size: int = 8,
        *,
        hidden: Sequence[int] = (256, 128),
        activation: str = "torch.nn.ReLU",
        dropout: float = 0.0,
        norm: str | None = None,
    ) -> None:
        super().__init__()
        check_latent(latent_size, input_shape)
        options = {"activation": activation, "dropout": dropout, "norm": norm}
        self.encoder = MLP(input_shape, latent_size, hidden=hidden, **options)  # type: ignore[arg-type]  # judged there
        decoder = MLP([latent_size], math.prod(input_shape), hidden=list(hidden)[::-1], **options)  # type: ignore[arg-type]  # judged there
        self.decoder = nn.Sequential(decoder, nn.Unflatten(1, tuple(input_shape)))

    def encode(self, inputs: Tensor) -> Tensor:
        """Map inputs `[B, *input_shape]` to latent vectors `[B, latent_size]`."""
        latent: Tensor = self.encoder(inputs)
        return latent

    def forward(self, inputs: Tensor) -> Tensor:
        """Map inputs `[B, *input_shape]` to their reconstruction, of the same shape."""
        outputs: Tensor = self.decoder(self.encode(inputs))
        return outputs


def check_latent(latent_size: int, input_shape: Sequence[int]) -> None:
    """Refuse a latent size below 1; warn if it is not smaller than the inputs."""
    check_numbers("[1, inf)", latent_size=latent_size)
    if latent_size >= (size := math.prod(input_shape)):
        _log.warning(
            "model.latent_size=%d: an input has only %d values, which the model can return unchanged "
            "without learning anything; make it smaller, or add noise: augment=noise",
            latent_size,
            size,
        )
