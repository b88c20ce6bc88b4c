from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal, final

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from assay.errors import check_numbers
from assay.loss.targets import binary_targets, squeeze_label
from assay.task.task_of import task_of

if TYPE_CHECKING:
    from collections.abc import Sequence


@final
class BCEWithLogits(nn.Module):
    """Binary cross-entropy on logits, for one or several yes-or-no labels per sample.

    Args:
        pos_weight: How much more a positive counts than a negative: None, "balanced" (n_neg / n_pos of each
            label), one number, or one number per label.
        class_counts: Training samples: `[n_neg, n_pos]` for a binary task, the positives of each label for a
            multi-label one. Needed by "balanced".
        num_train: Number of training samples; needed by "balanced" in a multi-label task.
        task: "binary" or "multilabel": how "balanced" reads `class_counts`.

    Raises:
        ValueError: If `pos_weight` cannot be used, or a label to balance has no positive or no negative.
    """

    kind: ClassVar[str] = "binary"
    mean_over_samples: ClassVar[bool] = True
    pos_weight: Tensor

    def __init__(
        self,
        pos_weight: float | Literal["balanced"] | Sequence[float] | None = None,
        class_counts: Sequence[int] | None = None,
        num_train: int | None = None,
        task: str = "binary",
    ) -> None:
        super().__init__()
        if pos_weight == "balanced":
            weights = _balanced_pos_weight(class_counts, num_train, task)
        elif pos_weight is None:
            weights = [1.0]
        else:
            several = [pos_weight] if isinstance(pos_weight, int | float) else pos_weight
            weights = [float(weight) for weight in several]
        check_numbers("(0, inf)", pos_weight=weights or [0])
        self.weighted = pos_weight is not None
        self.register_buffer("pos_weight", torch.tensor(weights), persistent=False)

    def forward(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Average the loss over a batch and its labels; a `ValueError` if shapes or dtypes do not match."""
        logits, targets = binary_targets(outputs, targets)
        if not self.weighted:
            return F.binary_cross_entropy_with_logits(logits, targets)
        num_labels = 1
        if logits.ndim != 1:
            num_labels = logits.shape[1]
        if self.pos_weight.shape[0] not in (1, num_labels):
            raise ValueError(
                f"pos_weight has {self.pos_weight.shape[0]} numbers, the model returns {num_labels} logits."
            )
        return F.binary_cross_entropy_with_logits(
            logits, targets, pos_weight=self.pos_weight.to(logits.dtype)
        )

    def probabilities(self, outputs: Tensor) -> Tensor:
        """Sigmoid of each logit: float `[B]` for one label, `[B, L]` for several."""
        return squeeze_label(outputs).sigmoid()


def _balanced_pos_weight(
    class_counts: Sequence[int] | None, num_train: int | None, task: str
) -> list[float]:
    if class_counts is None:
        raise ValueError(
            "pos_weight=balanced needs class_counts: leave loss.class_counts at ${spec.class_counts}."
        )
    if not task_of(task).by_class and num_train is not None:
        balance = [(num_train - count, count) for count in class_counts]
    elif task_of(task).by_class and len(class_counts) == 2:
        balance = [(class_counts[0], class_counts[1])]
    else:
        raise ValueError(
            "pos_weight=balanced needs a binary task with two class_counts or a multilabel task with "
            f"num_train, got task {task} with {len(class_counts)} class_counts and num_train {num_train}"
        )
    for counts in balance:  # negative and positive training samples of a label
        check_numbers("[1, inf)", class_counts=counts)
    return [n_neg / n_pos for n_neg, n_pos in balance]
