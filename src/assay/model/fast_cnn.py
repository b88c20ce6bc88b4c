from __future__ import annotations

from typing import TYPE_CHECKING, final

import torch.nn.functional as F
from torch import Tensor, nn

from assay.errors import check_numbers
from assay.model.checks import parse_image_shape

if TYPE_CHECKING:
    from collections.abc import Sequence


@final
class FastCNN(nn.Module):
    """Convolutional network that learns small images in few epochs.

    After Jordan (2024), *94% on CIFAR-10 in 3.29 Seconds on a Single GPU*, https://arxiv.org/abs/2404.00498:
    a 2x2 convolution with two opposite filters for each value of a patch, which `callbacks.whitening` sets
    to the whitening of the training images; blocks of 3x3 convolution, 2x2 max pooling, batch norm and GELU,
    then convolution, batch norm and GELU; the global maximum; and one linear layer. Where the number of
    channels grows, convolutions start as the identity.

    Inputs `[B, C, H, W]`, float, of any size that can be halved by each block; outputs `[B, num_outputs]`.

    Args:
        input_shape: Channels, height and width of one image.
        num_outputs: Width of the output.
        widths: Channels of each block, first to last.
        output_scale: What the outputs are multiplied by.
        mirror: Whether outputs in evaluation are the mean of those of the image and of its mirror image.

    Raises:
        ValueError: No widths, a width below 1, the input is not an image, or it is too small for the blocks.
    """

    def __init__(
        self,
        input_shape: Sequence[int],
        num_outputs: int,
        *,
        widths: Sequence[int] = (32, 64, 128),
        output_scale: float = 1.0,
        mirror: bool = True,
    ) -> None:
        super().__init__()
        check_numbers("[1, inf)", widths=widths or [0], num_outputs=num_outputs)
        check_numbers("(0, inf)", output_scale=output_scale)
        channels, _, _ = parse_image_shape(
            input_shape, f"model=fast_cnn with {len(widths)} widths", minimum=2 ** len(widths) + 1
        )
        self.whiten = nn.Conv2d(channels, 8 * channels, kernel_size=2)
        channels *= 8
        blocks: list[nn.Module] = []
        for width in widths:
            blocks += [_conv(channels, width), nn.MaxPool2d(2), *_activate(width)]
            blocks += [_conv(width, width), *_activate(width)]
            channels = width
        self.blocks = nn.Sequential(*blocks)
        self.head = nn.Linear(channels, num_outputs, bias=False)
        self.output_scale = output_scale
        self.mirror = mirror

    def forward(self, inputs: Tensor) -> Tensor:
        """Map images `[B, C, H, W]` to outputs `[B, num_outputs]`."""
        outputs = self._classify(inputs)
        if self.mirror and not self.training:
            outputs = (outputs + self._classify(inputs.flip(-1))) / 2
        return outputs

    def _classify(self, images: Tensor) -> Tensor:
        features = self.blocks(F.gelu(self.whiten(images), approximate="tanh"))
        # not amax, whose compiled gradient is NaN in half precision (torch 2.15)
        maxima = features.flatten(2).max(2).values
        outputs: Tensor = self.head(maxima) * self.output_scale
        return outputs


def _conv(channels: int, width: int) -> nn.Conv2d:
    # The norm's shift makes a bias redundant.
    conv = nn.Conv2d(channels, width, kernel_size=3, padding=1, bias=False)
    if width >= channels:
        nn.init.dirac_(conv.weight.data[:channels])
    return conv


def _activate(width: int) -> list[nn.Module]:
    return [nn.BatchNorm2d(width), nn.GELU(approximate="tanh")]
