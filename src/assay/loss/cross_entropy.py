from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, final

from torch.nn import functional as F
from typing_extensions import override

from assay.errors import check_numbers
from assay.loss.targets import WeightedLoss, class_shares, class_targets, total_weight

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor


@final
class CrossEntropy(WeightedLoss):
    """Cross-entropy of a softmax, normalised by Σ q·w.

    `torch.nn.CrossEntropyLoss` divides a weighted loss by the sum of weights if targets are hard, by the
    batch size if they are soft; here a one-hot row and its class index have the same loss. For masks it is
    the mean over the pixels of each that are not ignored, then over the masks (torch's takes all pixels of a
    batch together), so that the result does not depend on how a batch is split.

    Args:
        label_smoothing: Share of each target spread evenly over all classes, in [0, 1) (Szegedy et al. 2016).
        class_weight: None, "balanced" (n / (C * n_c)) or one number per class.
        class_counts: Training samples of each class; needed by "balanced".
        ignore_index: Hard targets that are ignored, such as the pixels of no class in a mask.

    Raises:
        ValueError: If an argument is out of range, or a class to balance is empty.
    """

    def __init__(
        self,
        label_smoothing: float = 0.0,
        class_weight: Literal["balanced"] | Sequence[float] | None = None,
        class_counts: Sequence[int] | None = None,
        ignore_index: int = -100,
    ) -> None:
        super().__init__(class_weight, class_counts)
        check_numbers("[0, 1)", label_smoothing=label_smoothing)
        self.label_smoothing = label_smoothing
        self.ignore_index = ignore_index

    @override
    def forward(self, outputs: Tensor, targets: Tensor) -> Tensor:
        logits, targets = class_targets(outputs, targets, pixels=True)
        weight = self.weight_of(logits)
        soft = targets.is_floating_point()
        options: Any = {"label_smoothing": self.label_smoothing}
        if not soft:
            options["ignore_index"] = self.ignore_index
        if weight is not None:
            total = total_weight(class_shares(weight, targets, self.ignore_index))
            return F.cross_entropy(logits, targets, weight, reduction="sum", **options) / total
        if soft or logits.ndim == 2:
            return F.cross_entropy(logits, targets, **options)
        losses = F.cross_entropy(logits, targets, reduction="none", **options)
        return self.mean(losses, targets, logits, self.ignore_index)
