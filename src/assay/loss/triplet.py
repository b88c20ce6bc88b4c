from __future__ import annotations

from typing import ClassVar, Literal, final

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from assay.errors import check_numbers
from assay.loss.targets import at_least_float32


@final
class Triplet(nn.Module):
    """Pull each embedding to the farthest of its label, push it from the nearest of another label.

    Every sample of the batch is an anchor; one that has no other sample of its label, or none of another, is
    ignored, and a batch without any triplet has loss 0. Distances are Euclidean. From Hermans, Beyer and
    Leibe 2017, "In Defense of the Triplet Loss for Person Re-Identification", eq. 5.

    Args:
        margin: How much nearer the positive must be, at least 0; or "soft": softplus in place of a margin.
        normalize: Whether embeddings are scaled to length 1 first.

    Raises:
        ValueError: If `margin` is neither a number of at least 0 nor "soft".
    """

    kind: ClassVar[str] = "embedding"
    mean_over_samples: ClassVar[bool] = False

    def __init__(self, margin: float | Literal["soft"] = "soft", normalize: bool = False) -> None:
        super().__init__()
        check_numbers("[0, inf)", margin=0 if margin == "soft" else margin)
        self.margin = margin
        self.normalize = normalize

    def forward(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Average the loss over the anchors of a batch; a `ValueError` if shapes or dtypes do not match."""
        if targets.is_floating_point():
            raise ValueError(
                "triplet needs integer labels; mixup and cutmix make soft ones: "
                "use augment=none or flip_crop."
            )
        if outputs.ndim != 2 or targets.shape != outputs.shape[:1]:
            raise ValueError(
                f"triplet needs embeddings [B, D] and one label per sample, [B], got outputs "
                f"{list(outputs.shape)} and targets {list(targets.shape)}."
            )
        points = self.probabilities(outputs)
        positive, negative, valid = _mine_hardest(points.detach(), targets)
        # Distances of the mined pairs alone: exact, O(B·D), with gradient 0, not NaN, if two points coincide.
        to_positive = torch.linalg.vector_norm(points - points[positive], dim=1)
        to_negative = torch.linalg.vector_norm(points - points[negative], dim=1)
        gap = to_positive - to_negative
        if isinstance(self.margin, str):
            losses = F.softplus(gap)
        else:
            losses = F.relu(gap + self.margin)
        return (losses * valid).sum() / valid.sum().clamp_min(1)

    def probabilities(self, outputs: Tensor) -> Tensor:
        """Return the embeddings that the loss compares, of length 1 if `normalize`: float `[B, D]`."""
        points = at_least_float32(outputs)
        if self.normalize:
            return F.normalize(points, dim=1)
        return points


def _mine_hardest(points: Tensor, labels: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return the index of each anchor's farthest positive and nearest negative, and whether both exist."""
    distance = torch.cdist(points, points, compute_mode="donot_use_mm_for_euclid_dist")
    same = labels.unsqueeze(1) == labels.unsqueeze(0)
    positive = same & ~torch.eye(labels.shape[0], dtype=torch.bool, device=labels.device)
    farthest = distance.masked_fill(~positive, -torch.inf).argmax(dim=1)
    nearest = distance.masked_fill(same, torch.inf).argmin(dim=1)
    return farthest, nearest, positive.any(dim=1) & ~same.all(dim=1)
