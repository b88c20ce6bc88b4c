"""Yes or no."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, final

from typing_extensions import override

from assay.task.single_label import SingleLabel
from assay.task.task import LOGIT_KINDS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor


@final
class Binary(SingleLabel):
    """One of two classes per sample; the model returns one logit or two values, as the loss has it."""

    name = "binary"
    suits = "loss=bce_with_logits metrics=binary"
    loss_kinds = LOGIT_KINDS | {"embedding"}
    form = "0 or 1 per sample, [N]"
    num_classes = 2

    @override
    def hard_targets(self, targets: Tensor) -> Tensor:
        if targets.is_floating_point() and (targets.ndim == 1 or targets.shape[1] == 1):  # chances of yes
            return (targets.flatten() >= 0.5).long()
        return super().hard_targets(targets)

    @override
    def num_outputs(self, spec: Mapping[str, Any], loss_kind: str | None = None) -> int:
        return 1 if loss_kind == "binary" else super().num_outputs(spec, loss_kind)
