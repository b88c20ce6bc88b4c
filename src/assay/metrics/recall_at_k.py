from __future__ import annotations

from typing import final

import torch
from torch import Tensor
from torchmetrics import Metric
from torchmetrics.utilities.data import dim_zero_cat

from assay.errors import check_numbers

_PAIRS_AT_ONCE = 2**24  # 64 MiB of float32 distances


@final
class RecallAtK(Metric):
    """Share of samples with one of their own label among the k nearest others; with k = 1 the 1-NN accuracy.

    Each sample in turn is the query, all others are its gallery (leave one out); distances are Euclidean. A
    sample whose label is unique is a miss. NaN for fewer than two samples. As for embeddings in Song et
    al. 2016, "Deep Metric Learning via Lifted Structured Feature Embedding".

    Args:
        k: Number of neighbours, at least 1.

    Raises:
        ValueError: If `k` is less than 1.
    """

    is_differentiable = False
    higher_is_better = True
    plot_lower_bound = 0.0
    plot_upper_bound = 1.0
    full_state_update = False

    embeddings: list[Tensor]
    labels: list[Tensor]

    def __init__(self, k: int = 1) -> None:
        super().__init__()
        check_numbers("[1, inf)", k=k)
        self.k = k
        self.add_state("embeddings", default=[], dist_reduce_fx="cat")
        self.add_state("labels", default=[], dist_reduce_fx="cat")

    def update(self, preds: Tensor, target: Tensor) -> None:
        """Store a batch."""
        if preds.ndim != 2 or target.is_floating_point() or target.shape != preds.shape[:1]:
            raise ValueError(
                f"retrieval needs embeddings [B, D] and integer labels [B], got {list(preds.shape)} and "
                f"{target.dtype} {list(target.shape)}: without labels use metrics=none."
            )
        self.embeddings.append(preds.detach())
        self.labels.append(target)

    def compute(self) -> Tensor:
        """Share of samples with a neighbour of their label, a block of queries at a time: a scalar."""
        points = dim_zero_cat(self.embeddings)
        labels = dim_zero_cat(self.labels)
        points = points.float() if points.dtype in (torch.bfloat16, torch.float16) else points
        total = points.shape[0]
        if total < 2:
            return torch.full((), torch.nan, device=points.device)
        # Distances do not change, and |x|² − 2xy + |y|² loses fewer digits near 0.
        points = points - points.mean(dim=0)
        lengths = points.square().sum(dim=1)
        hits = torch.zeros((), dtype=torch.int64, device=points.device)
        rows = max(1, _PAIRS_AT_ONCE // total)
        # half precision cannot rank neighbours
        with torch.autocast(points.device.type, enabled=False):
            for start in range(0, total, rows):
                query = points[start : start + rows]
                # Without |query|², which is constant per row.
                distance = torch.addmm(lengths, query, points.T, alpha=-2)
                distance.diagonal(start).fill_(torch.inf)
                nearest = distance.topk(min(self.k, total - 1), dim=1, largest=False).indices
                hits += (
                    (labels[nearest] == labels[start : start + rows].unsqueeze(1))
                    .any(dim=1)
                    .sum()
                )
        return hits / total
