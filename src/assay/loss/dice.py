from __future__ import annotations

from typing import ClassVar, final

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from assay.errors import check_numbers
from assay.loss.targets import class_targets, softmax


@final
class Dice(nn.Module):
    """1 minus the soft Dice coefficient 2 Σ p·q / (Σ p² + Σ q²) over the pixels of a mask.

    The mean over the classes of each mask, and over the masks. From Milletari et al. 2016, "V-Net: Fully
    Convolutional Neural Networks for Volumetric Medical Image Segmentation", section 3; p is a softmax, q the
    mask of a class. A large and a small class count the same.

    Args:
        smooth: Added above and below, in pixels: a class in neither mask nor prediction counts as right.
        ignore_index: Pixels of a mask that are ignored.
        cross_entropy: Weight of the mean cross-entropy over the pixels of each mask, which is added: Dice
            alone learns slowly while a class is missed. nnU-Net (Isensee et al. 2021) adds the two as well,
            but its Dice leaves out the background and has no squares.

    Raises:
        ValueError: If `smooth` is not positive, or `cross_entropy` is negative.
    """

    kind: ClassVar[str] = "multiclass"
    mean_over_samples: ClassVar[bool] = True

    def __init__(
        self, smooth: float = 1.0, ignore_index: int = -100, *, cross_entropy: float = 0.0
    ) -> None:
        super().__init__()
        check_numbers("(0, inf)", smooth=smooth)
        check_numbers("[0, inf)", cross_entropy=cross_entropy)
        self.smooth = smooth
        self.ignore_index = ignore_index
        self.cross_entropy = cross_entropy

    def forward(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Average the loss over a batch."""
        logits, targets = class_targets(outputs, targets, pixels=True)
        if logits.ndim < 3:
            raise ValueError(
                f"loss=dice compares masks, outputs [B, C, H, W], got {list(outputs.shape)}; for one class a "
                "sample use loss=cross_entropy."
            )
        shares = logits.softmax(1)
        if targets.is_floating_point():
            counted = None
        else:
            counted = targets != self.ignore_index
        if counted is None:
            truth = targets
        else:
            labels = torch.arange(logits.shape[1], device=targets.device)
            truth = (targets.unsqueeze(1) == labels.view(-1, *[1] * (logits.ndim - 2))).to(
                shares.dtype
            )
            truth = truth * counted.unsqueeze(1)
            shares = shares * counted.unsqueeze(1)
        overlap = (shares * truth).flatten(2).sum(2)
        total = (shares.square() + truth.square()).flatten(2).sum(2)
        loss = (1 - (2 * overlap + self.smooth) / (total + self.smooth)).mean(1)
        if self.cross_entropy:
            pixels = cross_entropy(
                logits, targets, ignore_index=self.ignore_index, reduction="none"
            ).flatten(1)
            number = (
                pixels.shape[1] if counted is None else counted.flatten(1).sum(1).clamp(min=1)
            )
            loss = loss + self.cross_entropy * pixels.sum(1) / number
        return loss.mean()

    def probabilities(self, outputs: Tensor) -> Tensor:
        """Softmax over the classes: float `[B, C, ...]`."""
        return softmax(outputs)
