"""Samples of all subsets, and of training after its own transforms, have one form."""

from __future__ import annotations

from typing import TYPE_CHECKING

from assay.data.transform.normalize import scaled_alike
from assay.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor


def check_forms(first: Tensor, trained: Tensor, others: Mapping[str, Tensor]) -> None:
    """Refuse subsets, and transforms of training, whose samples are not what is evaluated.

    Args:
        first: Some training samples after the transforms of evaluation, `[B, ...]`.
        trained: The same after those of training; they may have another size.
        others: Some of each other subset after the transforms of evaluation.

    Raises:
        DataError: Shape, number of channels or type differ.
    """
    for name, samples in others.items():
        if samples.shape[1:] != first.shape[1:] or not scaled_alike(samples, first):
            raise DataError(
                f"data: a sample of the {name} subset has shape {tuple(samples.shape[1:])} and type "
                f"{samples.dtype}, one of the training subset {tuple(first.shape[1:])} and {first.dtype}",
                hint="bring the subsets to one shape and type, for example with data.transform.eval",
            )
    same_channels = trained.ndim == first.ndim and trained.shape[1] == first.shape[1]
    if not same_channels or not scaled_alike(trained, first):
        raise DataError(
            f"data.transform: after data.transform.train a sample has shape {tuple(trained.shape[1:])}, "
            f"{trained.dtype}, after data.transform.eval {tuple(first.shape[1:])} and {first.dtype}",
            hint="give both the transforms that change channels or type",
        )
