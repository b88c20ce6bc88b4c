"""The soft Dice loss."""

from __future__ import annotations

from typing import ClassVar, final

import torch
from torch import Tensor, nn

from assay.loss.targets import class_targets, softmax


@final
class Dice(nn.Module):
    """1 minus the soft Dice coefficient 2 Σ p·q / (Σ p² + Σ q²) over the pixels of a mask.

    The mean over the classes of each mask, and over the masks. From Milletari et al. 2016, "V-Net: Fully
    Convolutional Neural Networks for Volumetric Medical Image Segmentation", section 3; p is a softmax, q the
    mask of a class. A large and a small class count the same.

    Args:
        smooth: Added above and below, in pixels: a class that neither mask nor prediction has counts as
            right.
        ignore_index: Pixels of a mask that are left out.

    Raises:
        ValueError: If `smooth` is not positive.

    >>> logits = torch.tensor([[[[9.0, -9.0]], [[-9.0, 9.0]]]])
    >>> round(float(Dice()(logits, torch.tensor([[[0, 1]]]))), 3)
    0.0
    """

    kind: ClassVar[str] = "multiclass"
    mean_over_samples: ClassVar[bool] = True

    def __init__(self, smooth: float = 1.0, ignore_index: int = -100) -> None:
        super().__init__()
        if not smooth > 0:
            raise ValueError(f"smooth must be above 0, got {smooth}; use loss.smooth=1.0")
        self.smooth, self.ignore_index = smooth, ignore_index

    def forward(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Average the loss over a batch.

        Args:
            outputs: Logits, float `[B, C, ...]`.
            targets: int64 `[B, ...]`, or shares of each class, float `[B, C, ...]`.

        Raises:
            ValueError: If shapes or dtypes do not fit, or there are no pixels.
        """
        logits, targets = class_targets(outputs, targets, pixels=True)
        if logits.ndim < 3:
            raise ValueError(
                f"loss=dice compares masks, outputs [B, C, H, W], got {list(outputs.shape)}; for one class a "
                "sample use loss=cross_entropy."
            )
        shares = logits.softmax(1)
        if targets.is_floating_point():
            truth = targets
        else:
            counted = (targets != self.ignore_index).unsqueeze(1)
            labels = torch.arange(logits.shape[1], device=targets.device)
            truth = (targets.unsqueeze(1) == labels.view(-1, *[1] * (logits.ndim - 2))).to(shares.dtype)
            truth, shares = truth * counted, shares * counted
        both = (shares * truth).flatten(2).sum(2)
        each = (shares.square() + truth.square()).flatten(2).sum(2)
        return (1 - (2 * both + self.smooth) / (each + self.smooth)).mean()

    def probabilities(self, outputs: Tensor) -> Tensor:
        """Softmax over the classes: float `[B, C, ...]`."""
        return softmax(outputs)
