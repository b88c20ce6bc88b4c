from __future__ import annotations

import math
from typing import TYPE_CHECKING, final

from torch import Tensor, nn

from assay.errors import check_numbers
from assay.model.autoencoder import check_latent
from assay.model.checks import parse_image_shape

if TYPE_CHECKING:
    from collections.abc import Sequence


@final
class ConvAutoencoder(nn.Module):
    """Strided convolutions to a latent vector, and upsampling with convolutions back.

    Each encoder block halves the image (rounding up); each decoder block upsamples by nearest neighbour to
    the size before that, then convolves, which avoids checkerboards (Odena et al. 2016, "Deconvolution and
    Checkerboard Artifacts").

    Inputs `[B, C, H, W]`, float; outputs of the same shape.

    Args:
        input_shape: Channels, height and width of one image.
        latent_size: Width of the latent vector.
        widths: Channels of each block of the encoder, first to last.

    Raises:
        ValueError: No widths, a width or `latent_size` below 1, or the input is not an image.
    """

    def __init__(
        self,
        input_shape: Sequence[int],
        latent_size: int = 32,
        *,
        widths: Sequence[int] = (32, 64),
    ) -> None:
        super().__init__()
        check_numbers("[1, inf)", widths=widths or [0])
        channels, *size = parse_image_shape(input_shape, "model=conv_autoencoder")
        check_latent(latent_size, input_shape)
        encoder: list[nn.Module] = []
        sizes = [tuple(size)]
        for before, width in zip([channels, *widths], widths, strict=False):
            encoder += [
                nn.Conv2d(before, width, 3, stride=2, padding=1, bias=False),
                nn.BatchNorm2d(width),
            ]
            encoder.append(nn.ReLU())
            sizes.append(tuple(-(-side // 2) for side in sizes[-1]))
        smallest = widths[-1], *sizes[-1]
        flat = math.prod(smallest)
        self.encoder = nn.Sequential(*encoder, nn.Flatten(), nn.Linear(flat, latent_size))
        decoder: list[nn.Module] = [
            nn.Linear(latent_size, flat),
            nn.ReLU(),
            nn.Unflatten(1, smallest),
        ]
        backwards = [*widths[::-1][1:], widths[0]]
        for before, width, larger in zip(widths[::-1], backwards, sizes[-2::-1], strict=True):
            decoder += [nn.Upsample(larger), nn.Conv2d(before, width, 3, padding=1, bias=False)]
            decoder += [nn.BatchNorm2d(width), nn.ReLU()]
        self.decoder = nn.Sequential(*decoder, nn.Conv2d(widths[0], channels, 3, padding=1))

    def encode(self, inputs: Tensor) -> Tensor:
        """Map images `[B, C, H, W]` to latent vectors `[B, latent_size]`."""
        latent: Tensor = self.encoder(inputs)
        return latent

    def forward(self, inputs: Tensor) -> Tensor:
        """Map images `[B, C, H, W]` to their reconstruction, of the same shape."""
        outputs: Tensor = self.decoder(self.encode(inputs))
        return outputs
