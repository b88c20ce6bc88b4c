from __future__ import annotations

import math
from typing import TYPE_CHECKING, final

from torch import Tensor, nn

from assay.model.checks import image_shape

if TYPE_CHECKING:
    from collections.abc import Sequence


@final
class LeNet(nn.Module):
    """LeNet-5 (LeCun et al. 1998, *Gradient-based learning applied to document recognition*).

    Two 5x5 convolutions (6 and 16 maps), each with tanh and average pooling, then fully connected layers of
    120, 84 and `num_outputs`. As is usual today every map of the second convolution sees all six of the
    first, pooling has no weights, and the output layer is linear.

    For 32x32 (and 28x28, padded by 2) the maps have the paper's sizes. Smaller images keep their size in the
    convolutions; for larger ones the second pooling grows, so that at most 5x5 values a map reach the linear
    layers.

    Inputs `[B, C, H, W]`, float; outputs `[B, num_outputs]`.

    Args:
        input_shape: Channels, height and width of one image; at least 8x8 pixels.
        num_outputs: Width of the output.

    Raises:
        ValueError: The input is not an image or too small.
    """

    def __init__(self, input_shape: Sequence[int], num_outputs: int) -> None:
        super().__init__()
        channels, height, width = image_shape(input_shape, "model=lenet", minimum=8)
        # The paper feeds 28x28 digits in a 32x32 field: the same maps as padding by 2.
        padding = 0 if min(height, width) >= 32 else 2
        first = [(size + 2 * padding - 4) // 2 for size in (height, width)]
        second_padding = 0 if min(first) >= 10 else 2
        second = [size + 2 * second_padding - 4 for size in first]
        # A fixed window, since adaptive pooling has no deterministic backward on CUDA.
        window = [max(2, math.ceil(size / 5)) for size in second]
        pooled = math.prod(size // step for size, step in zip(second, window, strict=True))
        self.features = nn.Sequential(
            nn.Conv2d(channels, 6, kernel_size=5, padding=padding),
            nn.Tanh(),
            nn.AvgPool2d(2),
            nn.Conv2d(6, 16, kernel_size=5, padding=second_padding),
            nn.Tanh(),
            nn.AvgPool2d((window[0], window[1])),
        )
        self.classifier = nn.Sequential(
            nn.Flatten(),
            nn.Linear(16 * pooled, 120),
            nn.Tanh(),
            nn.Linear(120, 84),
            nn.Tanh(),
            nn.Linear(84, num_outputs),
        )

    def forward(self, inputs: Tensor) -> Tensor:
        """Map images `[B, C, H, W]` to outputs `[B, num_outputs]`."""
        outputs: Tensor = self.classifier(self.features(inputs))
        return outputs
