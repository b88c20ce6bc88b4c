from __future__ import annotations

from typing import TYPE_CHECKING, Literal, final

import torch
from torch import Tensor
from torch.nn import functional as F
from typing_extensions import override

from assay.errors import check_numbers
from assay.loss.targets import WeightedLoss, class_targets

if TYPE_CHECKING:
    from collections.abc import Sequence


@final
class Focal(WeightedLoss):
    """Cross-entropy that down-weights easy samples: -α_y (1 - p_y)^γ log p_y over a softmax.

    For a soft target q it is Σ_k q_k FL(z, k); a batch is normalised by Σ q·α. `gamma=0` is cross-entropy.
    From Lin et al. 2017, "Focal Loss for Dense Object Detection", eq. 5.

    Args:
        gamma: How strongly easy samples are down-weighted, from 0 to 20; more leaves no gradient.
        class_weight: α, the weight of each class: None, "balanced" (n / (C * n_c)) or one number per class.
        class_counts: Training samples of each class; needed by "balanced".
        ignore_index: Hard targets that are ignored, such as the pixels of no class in a mask.

    Raises:
        ValueError: If an argument is out of range, or a class to balance is empty.
    """

    def __init__(
        self,
        gamma: float = 2.0,
        class_weight: Literal["balanced"] | Sequence[float] | None = None,
        class_counts: Sequence[int] | None = None,
        ignore_index: int = -100,
    ) -> None:
        super().__init__(class_weight, class_counts)
        check_numbers("[0, 20]", gamma=gamma)
        self.gamma = gamma
        self.ignore_index = ignore_index

    @override
    def forward(self, outputs: Tensor, targets: Tensor) -> Tensor:
        logits, targets = class_targets(outputs, targets, pixels=True)
        log_p = F.log_softmax(logits, dim=1)
        if not targets.is_floating_point():
            labels = torch.where(targets == self.ignore_index, 0, targets)
            log_p = log_p.gather(1, labels.unsqueeze(1)).squeeze(1)
        # Above 0, as a power below 1 has no finite slope at 0.
        miss = (-torch.expm1(log_p)).clamp_min(torch.finfo(log_p.dtype).tiny)
        return self.mean(-(miss**self.gamma) * log_p, targets, logits, self.ignore_index)
