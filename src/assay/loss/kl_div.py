from __future__ import annotations

from typing import ClassVar, final

from torch import Tensor, nn
from torch.nn import functional as F

from assay.errors import check_numbers
from assay.loss.targets import class_targets, softmax


@final
class KLDiv(nn.Module):
    """T²·KL(q ‖ softmax(z / T)), averaged over the batch.

    Targets are used unchanged: those of a teacher must be softened with the same T. The factor T² keeps
    the size of gradients independent of T. From Hinton, Vinyals and Dean 2015, "Distilling the Knowledge
    in a Neural Network", section 2.

    Args:
        temperature: T, above 0.

    Raises:
        ValueError: If `temperature` is not above 0.
    """

    kind: ClassVar[str] = "multiclass"
    mean_over_samples: ClassVar[bool] = True

    def __init__(self, temperature: float = 2.0) -> None:
        super().__init__()
        check_numbers("(0, inf)", temperature=temperature)
        self.temperature = temperature

    def forward(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Average the loss over a batch; a `ValueError` if shapes or dtypes do not match."""
        logits, targets = class_targets(outputs, targets)
        logits = logits / self.temperature
        if targets.is_floating_point():
            loss = F.kl_div(F.log_softmax(logits, dim=1), targets, reduction="batchmean")
        else:
            loss = F.cross_entropy(logits, targets)  # a one-hot row has no entropy
        return self.temperature**2 * loss

    def probabilities(self, outputs: Tensor) -> Tensor:
        """Softmax over the classes at temperature 1: float `[B, C]`."""
        return softmax(outputs)
