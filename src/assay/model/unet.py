from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, final

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from assay.model.checks import parse_image_shape

if TYPE_CHECKING:
    from collections.abc import Sequence


@final
class UNet(nn.Module):
    """A U-Net (Ronneberger et al. 2015) whose convolutions keep the size, each with a batch norm after it.

    Each level halves height and width, and the decoder joins the features of the same size. Pictures of any
    size are padded at the right and bottom by their last pixels, to a size that can be halved so often.

    In eval mode a picture larger than `tile` is computed in tiles, each with all pixels around it that decide
    about its outputs: they are those of the whole picture, in bounded memory.

    Inputs `[B, C, H, W]`, float; outputs `[B, num_outputs, H, W]`.

    Args:
        input_shape: Channels, height and width of one picture.
        num_outputs: Classes.
        widths: Channels of each level, from the full size down.

    Attributes:
        tile: Height and width of a tile, in pixels.

    Raises:
        ValueError: The input is not a picture, or there are fewer than two levels.
    """

    def __init__(
        self,
        input_shape: Sequence[int],
        num_outputs: int,
        widths: Sequence[int] = (16, 32, 64, 128),
    ) -> None:
        super().__init__()
        channels, height, width = parse_image_shape(input_shape, "this model (UNet)")
        if len(widths) < 2 or min(widths) < 1:
            raise ValueError(f"model.widths={list(widths)}: expected two or more numbers above 0")
        self.multiple = 1 << (len(widths) - 1)
        if self.multiple > max(height, width):
            raise ValueError(
                f"model.widths halves pictures {len(widths) - 1} times; these have {height}x{width} pixels: "
                f"model.widths=[{', '.join(map(str, widths[:2]))}]"
            )
        self.down = nn.ModuleList(
            _convolutions(before, after) for before, after in pairwise([channels, *widths])
        )
        upwards = list(pairwise(reversed(widths)))
        self.up = nn.ModuleList(
            nn.ConvTranspose2d(below, above, 2, stride=2) for below, above in upwards
        )
        self.join = nn.ModuleList(_convolutions(2 * above, above) for _, above in upwards)
        self.head = nn.Conv2d(widths[0], num_outputs, 1)
        self.tile = 1024

    def forward(self, inputs: Tensor) -> Tensor:
        """Map pictures `[B, C, H, W]` to one value per class and pixel, `[B, num_outputs, H, W]`."""
        height, width = inputs.shape[2:]
        below = -height % self.multiple
        right = -width % self.multiple
        padded = inputs
        if below or right:
            padded = F.pad(inputs, (0, right, 0, below), mode="replicate")
        # a graph that is exported takes pictures of any size
        if self.training or torch.compiler.is_compiling() or max(height, width) <= self.tile:
            outputs = self._map(padded)
        else:
            outputs = self._map_tiles(padded)
        return outputs[:, :, :height, :width]

    def _map_tiles(self, inputs: Tensor) -> Tensor:
        margin = self._margin()
        size = max(self.tile // self.multiple, 1) * self.multiple
        rows = []
        for top in range(0, inputs.shape[2], size):
            above = min(top, margin)
            strip = inputs[:, :, top - above : top + size + margin]
            tiles = []
            for start in range(0, inputs.shape[3], size):
                before = min(start, margin)
                outputs = self._map(strip[..., start - before : start + size + margin])
                tiles.append(outputs[:, :, above : above + size, before : before + size])
            rows.append(torch.cat(tiles, 3))
        return torch.cat(rows, 2)

    def _margin(self) -> int:
        """How far from an edge within the picture outputs depend on what lies beyond it, rounded up."""
        reach = 0
        reaches = []
        for level in range(len(self.down)):
            if level:
                reach = -(-reach // 2)
            reach += 2  # each level has two convolutions of 3×3
            reaches.append(reach)
        for before in reversed(reaches[:-1]):
            reach = max(2 * reach, before) + 2
        return -(-reach // self.multiple) * self.multiple

    def _map(self, inputs: Tensor) -> Tensor:
        """Outputs of pictures that can be halved at each level."""
        features = inputs
        skips: list[Tensor] = []
        for level, convolutions in enumerate(self.down):
            features = convolutions(F.max_pool2d(features, 2) if level else features)
            skips.append(features)
        skips.pop()
        for up, join in zip(self.up, self.join, strict=True):
            features = join(torch.cat([skips.pop(), up(features)], 1))
        outputs: Tensor = self.head(features)
        return outputs


def _convolutions(before: int, after: int) -> nn.Sequential:
    layers: list[nn.Module] = []
    for channels in (before, after):
        layers += [
            nn.Conv2d(channels, after, 3, padding=1, bias=False),
            nn.BatchNorm2d(after),
            nn.ReLU(),
        ]
    return nn.Sequential(*layers)
