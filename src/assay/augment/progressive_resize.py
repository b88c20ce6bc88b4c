from __future__ import annotations

from typing import final

import torch.nn.functional as F
from torch import Tensor, nn

from assay.errors import check_numbers


@final
class ProgressiveResize(nn.Module):
    """Scales images down in the first epochs, where a step then takes less time.

    Targets that are masks are not scaled, so it is for classification and regression. The model must take
    images of several sizes, as one with a global pooling does. After Tan and Le (2021), *EfficientNetV2*,
    https://arxiv.org/abs/2104.00298, section 4.

    Args:
        scale: Of height and width in the first epochs, in (0, 1).
        until: Share of the optimizer steps in which images are small; an epoch keeps one size.
        total_steps: Optimizer steps of the training.
        steps_per_epoch: Optimizer steps of an epoch.

    Raises:
        ValueError: A number is out of its range; as a batch is augmented, if it holds no images.
    """

    def __init__(
        self, total_steps: int, steps_per_epoch: int, scale: float = 0.75, until: float = 0.5
    ) -> None:
        super().__init__()
        check_numbers("(0, 1)", scale=scale)
        check_numbers("[0, 1]", until=until)
        check_numbers("[1, inf)", total_steps=total_steps, steps_per_epoch=steps_per_epoch)
        self.scale = scale
        self.until = until
        self.total_steps = total_steps
        self.steps_per_epoch = steps_per_epoch
        self.set_epoch(0)

    def set_epoch(self, epoch: int) -> None:
        """Choose the size for an epoch, counted from 0."""
        self._is_small = epoch * self.steps_per_epoch < self.until * self.total_steps

    def forward(self, inputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """Scale the inputs; return the targets unchanged."""
        if inputs.ndim != 4:
            raise ValueError(
                f"augment=progressive_resize takes images [B,C,H,W], got {list(inputs.shape)}"
            )
        if targets.ndim >= 3:
            raise ValueError(
                "augment=progressive_resize does not scale masks; use augment=flip_crop"
            )
        if not self._is_small:
            return inputs, targets
        size = [max(1, round(self.scale * side)) for side in inputs.shape[2:]]
        return F.interpolate(inputs, size, mode="bilinear", antialias=True), targets
