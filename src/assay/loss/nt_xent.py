from __future__ import annotations

from typing import ClassVar, final

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from assay.errors import ConfigError, check_numbers
from assay.loss.targets import at_least_float32


@final
class NTXent(nn.Module):
    """Normalised temperature-scaled cross-entropy: pick a view's other view out of the batch.

    Of a view z_i and another view z_j of its sample, `-log(exp(s_ij / T) / Σ_{k≠i} exp(s_ik / T))` with the
    cosine similarity s, averaged over all such pairs. From Chen et al. 2020, "A Simple Framework for
    Contrastive Learning of Visual Representations", eq. 1.

    Negatives are the views of other samples in its batch: on one device (not all of DDP's), and of one of the
    batches whose gradients are accumulated. A batch of one sample has no negatives: it is refused in training
    and has loss 0 in evaluation.

    Args:
        temperature: T, above 0.

    Raises:
        ValueError: If `temperature` is not above 0.
    """

    kind: ClassVar[str] = "views"
    mean_over_samples: ClassVar[bool] = False

    def __init__(self, temperature: float = 0.5) -> None:
        super().__init__()
        check_numbers("(0, inf)", temperature=temperature)
        self.temperature = temperature

    def forward(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Average the loss over the pairs of a batch."""
        if outputs.ndim != 2 or targets.shape != outputs.shape[:1] or targets.is_floating_point():
            raise ValueError(
                f"nt_xent needs views [B, D] and the index of each view's sample, [B], got outputs "
                f"{list(outputs.shape)} and {targets.dtype} {list(targets.shape)}: use augment=two_views."
            )
        if self.training and len(outputs) < 3:
            raise ConfigError(
                "a batch of one sample has no other sample to compare it with",
                key="data.batch_size",
                hint="data.batch_size=64; data.drop_last=true drops a last batch of one",
            )
        points = F.normalize(at_least_float32(outputs), dim=1)
        # half precision cannot tell neighbours apart
        with torch.autocast(points.device.type, enabled=False):
            similarity = points @ points.T / self.temperature
        self_pair = torch.eye(len(points), dtype=torch.bool, device=points.device)
        pairs = (targets.unsqueeze(1) == targets.unsqueeze(0)) & ~self_pair
        log_chance = similarity.masked_fill(self_pair, -torch.inf).log_softmax(1)
        # 0 without such a pair: an infinity times 0 would be NaN.
        return -log_chance.masked_fill(~pairs, 0).sum() / pairs.sum().clamp_min(1)

    def probabilities(self, outputs: Tensor) -> Tensor:
        """Return the outputs as floats `[B, D]`."""
        return at_least_float32(outputs)
