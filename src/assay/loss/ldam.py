from __future__ import annotations

from typing import TYPE_CHECKING, Literal, final

import torch
from torch import Tensor
from torch.nn import functional as F
from typing_extensions import override

from assay.errors import check_numbers
from assay.loss.targets import WeightedLoss, at_least_float32, class_targets, softmax

if TYPE_CHECKING:
    from collections.abc import Sequence


@final
class LDAM(WeightedLoss):
    """Cross-entropy with a wider margin for a rarer class: CE(s·(z − m_y·onehot_y), y), m_j ∝ n_j^(-1/4).

    For a soft target q it is Σ_k q_k LDAM(z, k); a batch is normalised by Σ q·w. From Cao et al.
    2019, "Learning Imbalanced Datasets with Label-Distribution-Aware Margin Loss"; its deferred re-weighting
    calls `set_class_weight` late in training.

    Args:
        class_counts: Training samples of each class, none of them 0.
        max_margin: Margin of the rarest class, above 0.
        scale: s, what logits and margins are multiplied by, above 0. Cao et al. scale cosines, of normalised
            features and weights, by 30; the logits of other heads have a size of their own, so by default 1.
        class_weight: None, "balanced" (n / (C * n_c)) or one number per class.

    Raises:
        ValueError: If an argument is out of range, or a class is empty.
    """

    margins: Tensor

    def __init__(
        self,
        class_counts: Sequence[int],
        max_margin: float = 0.5,
        scale: float = 1.0,
        class_weight: Literal["balanced"] | Sequence[float] | None = None,
    ) -> None:
        super().__init__(class_weight, class_counts)
        check_numbers("(0, inf)", max_margin=max_margin, scale=scale)
        check_numbers("[1, inf)", class_counts=class_counts)
        self.scale = scale
        rarest = min(class_counts)
        margins = [max_margin * (rarest / count) ** 0.25 for count in class_counts]
        self.register_buffer("margins", torch.tensor(margins), persistent=False)

    @override
    def forward(self, outputs: Tensor, targets: Tensor) -> Tensor:
        logits, targets = class_targets(outputs, targets)
        if logits.shape[1] != self.margins.shape[0]:
            raise ValueError(
                f"ldam has {self.margins.shape[0]} margins, the model returns {logits.shape[1]} logits."
            )
        scaled = self.scale * logits
        # The largest becomes 0: then only differences are rounded, not the logits' common offset.
        scaled = scaled - scaled.detach().amax(dim=1, keepdim=True)
        shift = torch.diag(self.scale * self.margins.to(logits.dtype))
        if targets.is_floating_point():  # the loss of each class as the target
            losses = -(scaled.unsqueeze(1) - shift).log_softmax(2).diagonal(dim1=1, dim2=2)
        else:
            losses = F.cross_entropy(scaled - shift[targets], targets, reduction="none")
        return self.mean(losses, targets, logits)

    @override
    def probabilities(self, outputs: Tensor) -> Tensor:
        """Softmax of the scaled logits, without margins: float `[B, C]`."""
        return softmax(self.scale * at_least_float32(outputs))
