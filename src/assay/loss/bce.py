from __future__ import annotations

from typing import ClassVar, final

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from assay.loss.targets import binary_targets, one_label


@final
class BCE(nn.Module):
    """Binary cross-entropy for a model that ends in a sigmoid; for logits `BCEWithLogits` is more exact."""

    kind: ClassVar[str] = "binary"
    mean_over_samples: ClassVar[bool] = True

    def forward(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Average the loss over a batch and its labels."""
        values, targets = binary_targets(outputs, targets)
        # Torch refuses this function under autocast for fear of half precision; both arguments are wider.
        with torch.autocast(device_type=values.device.type, enabled=False):
            try:
                return F.binary_cross_entropy(values, targets)
            except RuntimeError as error:
                if "between 0 and 1" not in str(error):
                    raise
                msg = (
                    "bce needs the model's outputs and the targets in [0, 1]: for a model that returns "
                    "logits use loss=bce_with_logits."
                )
                raise ValueError(msg) from error

    def probabilities(self, outputs: Tensor) -> Tensor:
        """Give the outputs themselves: float `[B]` for one label, `[B, L]` for several."""
        return one_label(outputs)
