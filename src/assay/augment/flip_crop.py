from __future__ import annotations

from typing import final

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from assay.errors import check_numbers
from assay.task.segmentation import IGNORED

_MULTIPLIER = 2654435761
"""The golden ratio of 2**32 (Knuth), which spreads small differences over the upper bits."""


@final
class FlipCrop(nn.Module):
    """Pads each image with zeros, crops a random window of the original size, and flips it at random.

    The padded batch is read once, through one index that combines window and flip. In
    `torchvision.transforms.v2`, which draws one window for the whole batch, this needs a loop over images.

    The draws come from the default generator of the device the inputs are on, so `torch.manual_seed` fixes
    them and a GPU need not wait for the CPU; CPU and GPU draw different numbers from the same seed.

    The inputs are normalised, so a padded zero is the mean of the training data.

    Args:
        padding: Zeros added on each side, in pixels, or below 1 as a share of the shorter side; the window
            moves by up to this many each way.
        flip: Probability of a horizontal flip.
        alternate: Flip each image in every second epoch, half of them in the even ones, instead of at random:
            any two epochs show all images both ways (Jordan 2024, https://arxiv.org/abs/2404.00498, section
            3.6). Images are told apart by their pixels; what changes them before makes this random again.

    Raises:
        ValueError: If `padding` is negative, `flip` is not a probability, or flips alternate although it is
            not 0.5.
    """

    def __init__(
        self,
        padding: float = 4,
        flip: float = 0.5,
        *,
        alternate: bool = False,
    ) -> None:
        super().__init__()
        if padding < 0 or (padding >= 1 and padding != int(padding)):
            raise ValueError(
                f"padding={padding}: expected a number of pixels, such as 4, or a share below 1, such as "
                "padding=0.125"
            )
        check_numbers("[0, 1]", flip=flip)
        if alternate and flip != 0.5:
            raise ValueError(
                f"flip={flip}: alternating flips are half of all; use flip=0.5 or alternate=false"
            )
        self.padding = padding
        self.flip = flip
        self.alternate = alternate
        self._epoch = 0

    def extra_repr(self) -> str:
        """Return the options for `print`."""
        return f"padding={self.padding}, flip={self.flip}, alternate={self.alternate}"

    def set_epoch(self, epoch: int) -> None:
        """Choose which images are flipped, where flips alternate."""
        self._epoch = epoch

    def forward(self, inputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """Augment the inputs, and the targets if they are masks."""
        if inputs.ndim != 4:
            shape = list(inputs.shape)
            raise ValueError(
                f"augment=flip_crop takes images [B,C,H,W], got {shape}; use augment=none"
            )
        padding = int(self.padding)
        if self.padding < 1:
            padding = round(self.padding * min(inputs.shape[2:]))
        flipped = None
        if self.alternate:
            flipped = self._alternate(inputs)
        pixels = self._draw(inputs, padding, flipped)
        if targets.shape == (len(inputs), *inputs.shape[2:]):
            targets = _gather_planes(targets[:, None], pixels, padding, IGNORED)[:, 0]
        if inputs.is_contiguous() or not inputs.is_contiguous(memory_format=torch.channels_last):
            return _gather_planes(inputs, pixels, padding), targets
        return _gather_pixels(inputs, pixels, padding), targets

    def _alternate(self, inputs: Tensor) -> Tensor:
        """Choose by a hash of its middle row whether an image is flipped `[B, 1]`; inverted in odd epochs."""
        row = inputs[:, :, inputs.shape[2] // 2].float().contiguous().view(torch.int32)
        number = row.flatten(1).sum(1, dtype=torch.int64) * _MULTIPLIER
        return ((number >> 31) + self._epoch)[:, None] % 2 == 1

    def _draw(self, inputs: Tensor, padding: int, flipped: Tensor | None) -> Tensor:
        """Draw the index of each output pixel `[B, H, W]` in its padded, flattened image."""
        batch, _, height, width = inputs.shape
        device = inputs.device
        top, left = torch.randint(2 * padding + 1, (2, batch, 1), device=device).unbind()
        if flipped is None:
            flipped = torch.rand(batch, 1, device=device) < self.flip
        column = torch.arange(width, device=device).expand(batch, width)
        column = torch.where(flipped, width - 1 - column, column) + left
        row = torch.arange(height, device=device) + top
        return row[:, :, None] * (width + 2 * padding) + column[:, None, :]


def _gather_planes(inputs: Tensor, pixels: Tensor, padding: int, padded_with: int = 0) -> Tensor:
    """Gather from `[B, C, H * W]`: `gather` is the fast way to use a broadcast index."""
    batch, channels, height, width = inputs.shape
    planes = F.pad(inputs, (padding,) * 4, value=padded_with).reshape(batch, channels, -1)
    index = pixels.reshape(batch, 1, -1).expand(batch, channels, height * width)
    return planes.gather(2, index).reshape(inputs.shape)


def _gather_pixels(inputs: Tensor, pixels: Tensor, padding: int) -> Tensor:
    """Gather whole pixels, rows of `[B * H * W, C]`, which are contiguous in channels-last memory."""
    batch, channels, height, width = inputs.shape
    padded = F.pad(inputs.permute(0, 2, 3, 1), (0, 0) + (padding,) * 4)
    first = torch.arange(batch, device=inputs.device) * padded[0, :, :, 0].numel()
    index = (pixels + first[:, None, None]).reshape(-1)
    rows = padded.reshape(-1, channels).index_select(0, index)
    return rows.reshape(batch, height, width, channels).permute(0, 3, 1, 2)
