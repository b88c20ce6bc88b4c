"""Shared by losses: precision, softmax, shapes of outputs and targets, and class weights."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from assay.errors import check_numbers

if TYPE_CHECKING:
    from collections.abc import Sequence


def at_least_float32(values: Tensor) -> Tensor:
    """Widen bfloat16 and float16 to float32; leave float32 and float64 as they are."""
    if not values.is_floating_point():
        raise ValueError(
            f"a loss needs the model's outputs as floats, got {values.dtype}: let the model return logits."
        )
    if values.dtype in (torch.bfloat16, torch.float16):
        return values.float()
    return values


_WIDTH = 16
"""Numbers that the widest vector instructions of a CPU take at once."""


def softmax(outputs: Tensor) -> Tensor:
    """Softmax over the classes; the result of a sample does not depend on its batch.

    Rows shorter than a vector register are summed number by number on the CPU (torch 2.15: 4,096 rows of 10
    take 720 µs, of 16 take 97), so that they are padded with classes of no probability.
    """
    logits = at_least_float32(outputs)
    if logits.ndim != 2 or logits.shape[1] >= _WIDTH or logits.device.type != "cpu":
        return logits.softmax(1)
    padded = logits.new_full((logits.shape[0], _WIDTH), -float("inf"))
    padded[:, : logits.shape[1]] = logits
    return padded.softmax(1)[:, : logits.shape[1]]


def is_mean_over_samples(loss: nn.Module) -> bool:
    """Return whether the loss of a batch is the mean over its parts, weighted by their samples."""
    stated = getattr(loss, "mean_over_samples", None)
    if stated is not None:
        return bool(stated)
    means = getattr(loss, "reduction", None) in ("mean", "batchmean")
    of_torch = type(loss).__module__.startswith("torch.nn.")
    return of_torch and means and getattr(loss, "weight", None) is None


def loss_terms(loss: nn.Module, outputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor | None]:
    """Return the loss of a batch and its weight in the mean over several batches.

    Returns:
        A scalar and a scalar; of a loss that is a sum of terms with a mean each, `[K]` and `[K]`. No weight:
        that of a batch is its number of samples.
    """
    terms: Any = getattr(loss, "terms", None)
    if terms is not None:
        value, weight = terms(outputs, targets)
        return value, weight
    value = loss(outputs, targets)
    if not isinstance(loss, nn.CrossEntropyLoss | nn.NLLLoss) or loss.reduction != "mean":
        return value, None
    if targets.is_floating_point():
        return value, None
    if loss.weight is None:
        weight = torch.ones_like(value).expand(outputs.shape[1])
    else:
        weight = loss.weight
    return value, class_shares(weight, targets, loss.ignore_index).sum()


def has_terms(loss: nn.Module) -> bool:
    """Return whether `loss_terms` may return more than the loss of a batch."""
    return hasattr(loss, "terms") or isinstance(loss, nn.CrossEntropyLoss | nn.NLLLoss)


def class_targets(
    outputs: Tensor, targets: Tensor, *, pixels: bool = False
) -> tuple[Tensor, Tensor]:
    """Check shapes and dtypes of outputs and targets, and convert them to one precision."""
    logits = at_least_float32(outputs)
    usual = (
        targets.dtype == torch.int64 and logits.ndim == 2 and targets.shape == logits.shape[:1]
    )
    if usual and logits.shape[1] > 1:  # the fast path of each step
        return logits, targets
    if logits.ndim < 2 or (logits.ndim > 2 and not pixels) or logits.shape[1] < 2:
        raise ValueError(
            f"a loss over classes needs one logit per class, [B, C] with C at least 2, got outputs "
            f"{list(outputs.shape)}: for one logit per sample use loss=bce_with_logits."
        )
    soft = targets.is_floating_point()
    indices = [*logits.shape[:1], *logits.shape[2:]]
    if list(targets.shape) != (list(logits.shape) if soft else indices):
        raise ValueError(
            f"targets {targets.dtype} {list(targets.shape)} do not fit outputs {list(outputs.shape)}: "
            f"expected class indices {indices} or probabilities {list(logits.shape)}; for floats to regress "
            "use loss=mse, for several labels a sample loss=bce_with_logits"
        )
    return logits, targets.to(logits.dtype) if soft else targets.long()


def squeeze_label(outputs: Tensor) -> Tensor:
    """Squeeze outputs of one label from `[B, 1]` to `[B]`, as at least float32; keep `[B, L]`."""
    values = at_least_float32(outputs)
    if values.ndim not in (1, 2):
        raise ValueError(
            f"a binary loss needs one output per label, [B], [B, 1] or [B, L], got {list(outputs.shape)}."
        )
    if values.ndim == 2 and values.shape[1] == 1:
        return values.squeeze(1)
    return values


def binary_targets(outputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """Convert outputs and targets to one shape and precision, after checking shapes and dtypes."""
    values = squeeze_label(outputs)
    if values.ndim == 1 and targets.ndim == 2:
        if targets.shape[1] == 1:
            targets = targets.squeeze(1)
        elif targets.shape[1] == 2 and targets.is_floating_point():
            targets = targets[:, 1]
    if targets.shape != values.shape:
        raise ValueError(
            f"targets {targets.dtype} {list(targets.shape)} do not fit outputs {list(outputs.shape)}: one "
            "logit takes [B] (or soft floats [B, 2]), L logits take [B, L]; for classes that exclude each "
            "other use loss=cross_entropy."
        )
    return values, targets.to(values.dtype)


class WeightedLoss(nn.Module, ABC):
    """Base class of losses over weighted classes, such as cross-entropy."""

    kind: ClassVar[str] = "multiclass"
    class_weight: Tensor

    def __init__(
        self,
        class_weight: Literal["balanced"] | Sequence[float] | None,
        class_counts: Sequence[int] | None,
    ) -> None:
        super().__init__()
        # Always present and, if the classes are known, of one shape: weight averaging pairs buffers, and
        # weights that are set later use its device.
        shape = () if class_counts is None else (len(class_counts),)
        self.register_buffer("class_weight", torch.ones(shape), persistent=False)
        self.has_class_weight = False
        if class_weight is None:
            return
        if class_weight == "balanced":  # as in scikit-learn: all classes count the same in total
            if class_counts is None:
                raise ValueError(
                    "class_weight=balanced needs class_counts: set loss.class_counts=${spec.class_counts}."
                )
            check_numbers("[1, inf)", class_counts=class_counts)
            weights = [sum(class_counts) / (len(class_counts) * count) for count in class_counts]
        else:
            weights = [float(weight) for weight in class_weight]
            check_numbers("[0, inf)", class_weight=weights)
            check_numbers("(0, inf)", sum_of_class_weight=sum(weights))
        if class_counts is not None and len(weights) != len(class_counts):
            raise ValueError(
                f"class_weight needs one number per class, {len(class_counts)}, got {len(weights)}."
            )
        self.set_class_weight(torch.tensor(weights))

    @abstractmethod
    def forward(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Average the loss over a batch; a `ValueError` if shapes or dtypes do not match."""

    @property
    def mean_over_samples(self) -> bool:
        """Whether the loss of a batch is the mean over its samples: not with class weights."""
        return not self.has_class_weight

    def probabilities(self, outputs: Tensor) -> Tensor:
        """Softmax over the classes: float `[B, C, ...]`."""
        return softmax(outputs)

    def set_class_weight(self, weight: Tensor | None) -> None:
        """Set the class weights from now on."""
        self.has_class_weight = weight is not None
        if weight is None:
            self.class_weight = torch.ones_like(self.class_weight)
        else:
            self.class_weight = weight.to(self.class_weight)

    def terms(self, outputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor | None]:
        """Return the loss of a batch and, with class weights, the sum of its weights; see `loss_terms`."""
        value = self(outputs, targets)
        if not self.has_class_weight:
            return value, None
        logits, targets = class_targets(outputs, targets, pixels=True)
        weight = self.class_weight.to(logits.dtype)
        return value, total_weight(
            class_shares(weight, targets, getattr(self, "ignore_index", -100))
        )

    def weight_of(self, logits: Tensor) -> Tensor | None:
        """Return the weights `[C]` in the dtype of logits `[B, C]`; None if all classes count the same."""
        if not self.has_class_weight:
            return None
        if self.class_weight.shape != logits.shape[1:2]:
            raise ValueError(
                f"class_weight has {self.class_weight.numel()} numbers, the model returns {logits.shape[1]} "
                "logits: give one weight per class."
            )
        return self.class_weight.to(logits.dtype)

    def mean(
        self, losses: Tensor, targets: Tensor, logits: Tensor, ignore_index: int = -100
    ) -> Tensor:
        """Average a batch: Σ q·w·loss / Σ q·w, which is the same for a hard target and its one-hot row."""
        weight = self.weight_of(logits)
        if weight is not None:
            shares = class_shares(weight, targets, ignore_index)
            return (losses * shares).sum() / total_weight(shares)
        if targets.is_floating_point():
            return (losses * targets).sum() / (losses.numel() // losses.shape[1])
        if losses.ndim == 1 and ignore_index < 0:
            return losses.mean()
        if losses.ndim > 1:
            counted = (targets != ignore_index).flatten(1)
        else:
            counted = targets != ignore_index
        sums = losses.reshape(counted.shape).mul(counted).sum(-1)
        return (sums / counted.sum(-1).clamp_min(1)).mean()


def class_shares(weight: Tensor, targets: Tensor, ignore_index: int) -> Tensor:
    """Return q·w of each target, 0 for ignored ones."""
    if targets.is_floating_point():
        return targets * weight.view(-1, *[1] * (targets.ndim - 2))
    counted = targets != ignore_index
    return weight[torch.where(counted, targets, 0)] * counted


def total_weight(shares: Tensor) -> Tensor:
    """Return Σ q·w of a batch, at least a tiny number: a batch of weight 0 has loss 0, not NaN."""
    return shares.sum().clamp_min(torch.finfo(shares.dtype).tiny)
