"""The tested samples: what they are called, and how they look."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from assay.data.shown.shown_samples import TOKENS, Shown, show
from assay.quoting import to_utf8

if TYPE_CHECKING:
    from collections.abc import Sequence

    from assay.data.data_module import DataModule


def sample_names(data: DataModule) -> list[str]:
    """Paths within the data's folder, or rows of the source.

    Args:
        data: Has been set up.
    """
    samples, rows = data.splits.data[data.tested], data.splits.rows[data.tested].tolist()
    return [to_utf8(samples.names[row]) for row in rows] if samples.names else list(map(str, rows))


def feature_names(data: DataModule) -> Sequence[str]:
    """What each value of a flat input is called; nothing where nobody knows.

    Args:
        data: Has been set up.
    """
    encoded: Sequence[str] = getattr(data.encoder, "feature_names", ())
    names: Sequence[str] = getattr(data.splits.data[data.tested], "columns", ())
    return encoded or names


def show_tested(data: DataModule, positions: Sequence[int]) -> list[Shown]:
    """Some tested samples, as a person can look at them.

    Args:
        data: Has been set up.
        positions: In the tested subset.

    Raises:
        DataError: A sample cannot be read.
    """
    splits = data.splits
    if (pieces := getattr(data.encoder, "pieces", None)) is not None:
        targets = splits.targets(data.tested)[torch.as_tensor(positions)]
        return [Shown(None, {TOKENS: pieces(tokens)}) for tokens in targets.tolist()]
    columns = getattr(splits.data[data.tested], "columns", ())
    subset = data.ready_subset(data.tested, "eval")
    return show(subset, positions, data.seed, splits.raw.get(data.tested), columns)
