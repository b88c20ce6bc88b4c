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
    mask of a class. A large and a small class count the same. nnU-Net (Isensee et al. 2021) has no squares,
    leaves out the background, and takes the sums over the pixels of a whole batch.

    Args:
        smooth: Added above and below, in pixels: a class in neither mask nor prediction counts as right.
        ignore_index: Pixels of a mask that are ignored.
        cross_entropy: Weight of the mean cross-entropy over the pixels of each mask, which is added: Dice
            alone learns slowly while a class is missed.
        batch: Whether sums go over all masks of a batch, of cross-entropy too: then masks without a class do
            not count as right. Each process has a batch of its own.
        background: Whether the first class has a Dice coefficient.
        squares: Whether the sums below are of squares.

    Attributes:
        mean_over_samples: Whether it is a mean over the masks; not with `batch`.

    Raises:
        ValueError: If `smooth` is not positive, or `cross_entropy` is negative.
    """

    kind: ClassVar[str] = "multiclass"

    def __init__(
        self,
        smooth: float = 1.0,
        ignore_index: int = -100,
        *,
        cross_entropy: float = 0.0,
        batch: bool = False,
        background: bool = True,
        squares: bool = True,
    ) -> None:
        super().__init__()
        check_numbers("(0, inf)", smooth=smooth)
        check_numbers("[0, inf)", cross_entropy=cross_entropy)
        self.smooth = smooth
        self.ignore_index = ignore_index
        self.cross_entropy = cross_entropy
        self.batch = batch
        self.background = background
        self.squares = squares
        self.mean_over_samples = not batch

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
        overlap = self._sum(shares * truth)
        if self.squares:
            total = self._sum(shares.square() + truth.square())
        else:
            total = self._sum(shares + truth)
        dice = (2 * overlap + self.smooth) / (total + self.smooth)
        if not self.background:
            dice = dice[:, 1:]
        loss = (1 - dice).mean(1)
        if self.cross_entropy:
            if counted is None:
                pixels = cross_entropy(logits, targets, reduction="none").unsqueeze(1)
                number = self._sum(torch.ones_like(pixels))
            else:
                pixels = cross_entropy(
                    logits, targets, ignore_index=self.ignore_index, reduction="none"
                ).unsqueeze(1)
                number = self._sum(counted.unsqueeze(1)).clamp(min=1)
            loss = loss + self.cross_entropy * (self._sum(pixels) / number).squeeze(1)
        return loss.mean()

    def _sum(self, values: Tensor) -> Tensor:
        """Sum over pixels, of each mask or of the batch: `[B, C]` or `[1, C]`."""
        sums = values.flatten(2).sum(2)
        if self.batch:
            return sums.sum(0, keepdim=True)
        return sums

    def probabilities(self, outputs: Tensor) -> Tensor:
        """Softmax over the classes: float `[B, C, ...]`."""
        return softmax(outputs)
