"""Whether the loss of a batch is the mean of the losses of its samples."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import nn


def is_mean_over_samples(loss: nn.Module) -> bool:
    """Whether the loss of a batch is the mean of those of its parts, weighted by their samples.

    Args:
        loss: Says so in `mean_over_samples`; those of PyTorch in `reduction` and `weight`.

    >>> from torch import nn
    >>> [is_mean_over_samples(nn.MSELoss(reduction=one)) for one in ("mean", "sum")]
    [True, False]
    """
    stated = getattr(loss, "mean_over_samples", None)
    if stated is not None:
        return bool(stated)
    means = getattr(loss, "reduction", None) in ("mean", "batchmean")
    of_torch = type(loss).__module__.startswith("torch.nn.")
    return of_torch and means and getattr(loss, "weight", None) is None
