from __future__ import annotations

from typing import TYPE_CHECKING, final

from torch import Tensor, nn

from assay.errors import check_numbers
from assay.model.checks import parse_image_shape

if TYPE_CHECKING:
    from collections.abc import Sequence


@final
class SmallCNN(nn.Module):
    """Blocks of 3x3 convolution, batch norm and ReLU, then a global average and one linear layer.

    Between two blocks 2x2 max pooling halves the image.

    Inputs `[B, C, H, W]`, float; outputs `[B, num_outputs]`.

    Args:
        input_shape: Channels, height and width of one image.
        num_outputs: Width of the output.
        widths: Channels of each block, first to last.
        stride: Of the first convolution; 2 halves the image before all else.

    Raises:
        ValueError: No widths, a width or stride below 1, the input is not an image, or it is too small to be
            halved between the blocks.
    """

    def __init__(
        self,
        input_shape: Sequence[int],
        num_outputs: int,
        *,
        widths: Sequence[int] = (32, 64, 128),
        stride: int = 1,
    ) -> None:
        super().__init__()
        check_numbers("[1, inf)", widths=widths or [0], num_outputs=num_outputs, stride=stride)
        channels, _, _ = parse_image_shape(
            input_shape,
            f"model=small_cnn with {len(widths)} widths",
            minimum=stride * 2 ** (len(widths) - 1),
        )
        blocks: list[nn.Module] = []
        for index, width in enumerate(widths):
            block: list[nn.Module] = []
            if index != 0:
                block = [nn.MaxPool2d(2)]
            block += [
                # The norm's shift makes a bias redundant.
                nn.Conv2d(channels, width, 3, stride if index == 0 else 1, padding=1, bias=False),
                nn.BatchNorm2d(width),
                nn.ReLU(),
            ]
            blocks.append(nn.Sequential(*block))
            channels = width
        self.blocks = nn.Sequential(*blocks)
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.head = nn.Linear(channels, num_outputs)

    def forward(self, inputs: Tensor) -> Tensor:
        """Map images `[B, C, H, W]` to outputs `[B, num_outputs]`."""
        outputs: Tensor = self.head(self.pool(self.blocks(inputs)).flatten(1))
        return outputs
