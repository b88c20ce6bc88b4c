from __future__ import annotations

import math
from typing import TYPE_CHECKING, final, overload

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from assay.errors import check_numbers

if TYPE_CHECKING:
    from collections.abc import Sequence


@final
class RandomAffine(nn.Module):
    """Like `torchvision.transforms.v2.RandomAffine` for each image, on a whole batch in one resampling.

    torchvision draws once per batch, so that this needs a loop over images there. Bilinear; pixels outside
    are 0, the mean of normalised inputs. Draws come from the default generator of the images' device.

    Args:
        degrees: Largest rotation either way.
        translate: Largest shift either way, as a share of the size, in both directions.
        scale: Lowest and highest factor.
        shear: Largest horizontal shear either way, in degrees.
        flip: Probability of a horizontal flip.

    Raises:
        ValueError: A number is out of its range; as a batch is augmented, if its targets are masks.
    """

    def __init__(
        self,
        degrees: float = 15.0,
        translate: float = 0.1,
        scale: Sequence[float] = (0.8, 1.2),
        shear: float = 10.0,
        flip: float = 0.0,
    ) -> None:
        super().__init__()
        check_numbers("[0, inf)", degrees=degrees, translate=translate)
        check_numbers("[0, 90)", shear=shear)
        check_numbers("[0, 1]", flip=flip)
        low, high = scale
        check_numbers("(0, inf)", scale=scale)
        check_numbers(f"[{low}, inf)", scale=high)
        self.degrees = degrees
        self.translate = translate
        self.shear = shear
        self.flip = flip
        self.scale = float(low), float(high)

    @overload
    def forward(self, images: Tensor) -> Tensor: ...
    @overload
    def forward(self, images: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]: ...
    def forward(
        self, images: Tensor, targets: Tensor | None = None
    ) -> Tensor | tuple[Tensor, Tensor]:
        """Resample each image with its own transform; return targets, where given, unchanged."""
        if images.ndim != 4 or not images.is_floating_point():
            raise ValueError(f"expected float images [B,C,H,W], got {list(images.shape)}")
        if targets is not None and targets.shape == (len(images), *images.shape[2:]):
            raise ValueError("RandomAffine does not move masks; use augment=flip_crop")
        grid = F.affine_grid(self._draw(images), list(images.shape), align_corners=False)
        moved = F.grid_sample(images, grid.to(images.dtype), align_corners=False)
        if targets is None:
            return moved
        return moved, targets

    def _draw(self, images: Tensor) -> Tensor:
        """Draw matrices `[B, 2, 3]` from positions in the result to positions in the image, from -1 to 1."""
        draw = 2 * torch.rand(5, len(images), device=images.device) - 1
        angle = draw[0] * math.radians(self.degrees)
        shear = (draw[1] * math.radians(self.shear)).tan()
        low, high = self.scale
        factor = 1 / (low + (high - low) * (draw[2] + 1) / 2)
        cos = angle.cos() * factor
        sin = angle.sin() * factor
        # Coordinates from -1 to 1 would turn a rotation of a non-square image into a shear.
        ratio = images.shape[2] / images.shape[3]
        shift = 2 * self.translate * draw[3:]
        rows = [
            cos,
            cos * shear * ratio - sin * ratio,
            shift[0],
            sin / ratio,
            sin * shear + cos,
            shift[1],
        ]
        matrices = torch.stack(rows, 1).reshape(-1, 2, 3)
        if self.flip:
            flipped = torch.rand(len(images), device=images.device) < self.flip
            matrices[flipped, :, 0] *= -1
        return matrices
