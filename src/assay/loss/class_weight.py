"""How much each class counts in a loss."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, final

import torch
from torch import Tensor, nn

if TYPE_CHECKING:
    from collections.abc import Sequence


def balanced_weights(class_counts: Sequence[int]) -> list[float]:
    """Weights n / (C * n_c), with which each class counts the same in total, as scikit-learn's "balanced".

    Args:
        class_counts: Training samples of each class.

    Raises:
        ValueError: If a class has no sample.

    >>> balanced_weights([30, 10])
    [0.6666666666666666, 2.0]
    """
    for index, count in enumerate(class_counts):
        if count < 1:
            msg = (
                f"class_weight=balanced cannot weigh class {index}: it has no training sample. "
                "Remove the class, give it samples, or set loss.class_weight to a list of numbers."
            )
            raise ValueError(msg)
    total, num_classes = sum(class_counts), len(class_counts)
    return [total / (num_classes * count) for count in class_counts]


@final
class ClassWeight(nn.Module):
    """One weight per class: a buffer that follows its loss to the device and is computed anew, never saved.

    Args:
        class_weight: None, "balanced" or one non-negative number a class.
        class_counts: Training samples of each class; needed by "balanced".

    Raises:
        ValueError: If the weights cannot be used, or a class to balance is empty.
    """

    value: Tensor

    def __init__(
        self,
        class_weight: str | Sequence[float] | None = None,
        class_counts: Sequence[int] | None = None,
    ) -> None:
        super().__init__()
        self.num_classes = None if class_counts is None else len(class_counts)
        # Always there and, where the classes are known, of one shape: weight averaging pairs buffers by it,
        # and a weight that is set later knows the device.
        shape = () if self.num_classes is None else (self.num_classes,)
        self.register_buffer("value", torch.ones(shape), persistent=False)
        self._uniform = True
        if class_weight is None:
            return
        if class_weight == "balanced":
            if class_counts is None:
                msg = "class_weight=balanced needs class_counts: set loss.class_counts=${spec.class_counts}."
                raise ValueError(msg)
            weights = balanced_weights(class_counts)
        elif isinstance(class_weight, str):
            msg = f"class_weight must be null, balanced or a list of numbers, got {class_weight!r}."
            raise ValueError(msg)
        else:
            weights = [float(weight) for weight in class_weight]
            if not all(math.isfinite(weight) and weight >= 0 for weight in weights) or not any(weights):
                msg = f"class_weight must hold numbers of at least 0, one of them above 0, got {weights}."
                raise ValueError(msg)
        self.set(torch.tensor(weights))

    @property
    def weighs(self) -> bool:
        """Whether there are weights."""
        return not self._uniform

    def set(self, weight: Tensor | None) -> None:
        """Replace the weights from now on.

        Args:
            weight: Float `[C]`, on any device, not negative; None for no weights.

        Raises:
            ValueError: If there is not one weight per class.
        """
        if weight is None:
            self.value, self._uniform = torch.ones_like(self.value), True
            return
        if weight.ndim != 1 or (self.num_classes is not None and weight.shape[0] != self.num_classes):
            needed = f"[{self.num_classes or 'C'}]"
            raise ValueError(f"class_weight needs one number per class, {needed}, got {[*weight.shape]}.")
        self.value = weight.detach().to(device=self.value.device, dtype=self.value.dtype)
        self._uniform = False

    def of(self, logits: Tensor) -> Tensor | None:
        """Give the weights `[C]` in the dtype of logits `[B, C]`, or None where every class counts the same.

        Raises:
            ValueError: If there are more or fewer weights than logits.
        """
        if self._uniform:
            return None
        if self.value.shape[0] != logits.shape[1]:
            msg = (
                f"class_weight has {self.value.shape[0]} numbers, the model returns {logits.shape[1]} "
                "logits: give one weight per class."
            )
            raise ValueError(msg)
        return self.value.to(logits.dtype)

    def mean(self, losses: Tensor, targets: Tensor, logits: Tensor, ignore_index: int = -100) -> Tensor:
        """Average a batch: Σ q·w·loss / Σ q·w, which is the same for a hard target and its one-hot row.

        Without weights the pixels of each mask are averaged first, and then the masks: so the loss of a batch
        is the mean of those of its samples, however many of their pixels are left out.

        Args:
            losses: `[B, ...]`, the loss of the target class, if hard; `[B, C, ...]`, the loss of every class,
                if soft.
            targets: int64 `[B, ...]` or float `[B, C, ...]`.
            logits: Float `[B, C, ...]`.
            ignore_index: Hard targets that are left out.

        Returns:
            A scalar.
        """
        weight = self.of(logits)
        soft = targets.is_floating_point()
        if weight is None:
            if soft:
                return (losses * targets).sum() / (losses.numel() // losses.shape[1])
            if losses.ndim == 1 and ignore_index < 0:
                return losses.mean()
            counted = (targets != ignore_index).flatten(1) if losses.ndim > 1 else targets != ignore_index
            sums = losses.reshape(counted.shape).mul(counted).sum(-1)
            return (sums / counted.sum(-1).clamp_min(1)).mean()
        if soft:
            shares = targets * weight.view(-1, *[1] * (targets.ndim - 2))
        else:
            counted = targets != ignore_index
            shares = weight[torch.where(counted, targets, 0)] * counted
        return (losses * shares).sum() / total_weight(shares)


def total_weight(shares: Tensor) -> Tensor:
    """Σ q·w of a batch, kept above 0: a batch of nothing but weightless classes has loss 0, not NaN.

    >>> total_weight(torch.tensor([0.5, 1.5]))
    tensor(2.)
    """
    return shares.sum().clamp_min(torch.finfo(shares.dtype).tiny)
