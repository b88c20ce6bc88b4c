"""Subsets in which groups stay whole, or which lie later than the rest."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from assay.errors import DataError

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import NDArray

    Rows = NDArray[np.int64]

_ORDERS: Final = 10
"""Random orders of groups that are tried."""


def hold_out_groups(
    indices: Rows, fraction: float, labels: Rows | None, groups: Rows, *, seed: int, subset: str
) -> tuple[Rows, Rows]:
    """Take whole groups away, so that the subset has the share that was asked for, of each class too.

    Groups come in a random order, and one is taken where the subset's numbers of samples of each class come
    closer to the share by it; of several orders the one that comes closest counts.

    Args:
        indices: What there is.
        fraction: Share (0 to 1) of `indices` to take.
        labels: Class of every sample of the data set; None where the number of samples alone counts.
        groups: Group of every sample of the data set, numbers from 0.
        seed: Of the draw.
        subset: `val` or `test`, for messages.

    Returns:
        The rest and the subset, each in ascending order.

    Raises:
        DataError: There are fewer than two groups.
    """
    if fraction == 0:
        return indices, indices[:0]
    names, group = np.unique(groups[indices], return_inverse=True)
    if len(names) < 2:
        raise DataError(
            f"data.split.{subset}: {len(names)} group(s) are left to cut it from; at least two were expected",
            hint=f"data.split.{subset}=0, or data.split.group=null",
        )
    classes = np.zeros(len(indices), np.int64) if labels is None else labels[indices]
    table = np.zeros((len(names), int(classes.max()) + 1))
    np.add.at(table, (group, classes), 1)
    # Each class counts alike, and so does the subset's size.
    table = np.column_stack([table, table.sum(1)])
    table = table[:, table.any(0)] / table.sum(0)[table.any(0)]
    generator = np.random.default_rng(seed)
    drawn = [_drawn(table, fraction, generator.permutation(len(names))) for _ in range(_ORDERS)]
    taken = min(drawn, key=lambda one: one[0])[1][group]
    return indices[~taken], indices[taken]


def _drawn(table: NDArray[np.float64], fraction: float, order: Rows) -> tuple[float, NDArray[np.bool_]]:
    """How far a subset is from its share of each class, and which groups are in it."""
    missing = np.full(table.shape[1], fraction)
    taken = np.zeros(len(table), dtype=bool)
    for group in order:
        after = missing - table[group]
        if after @ after < missing @ missing:
            missing, taken[group] = after, True
    if not taken.any():  # each is larger than the share
        smallest = order[table[order, -1].argmin()]
        missing, taken[smallest] = missing - table[smallest], True
    if taken.all():
        missing, taken[order[-1]] = missing + table[order[-1]], False
    return float(missing @ missing), taken


def hold_out_latest(indices: Rows, fraction: float, times: pd.Series[Any], subset: str) -> tuple[Rows, Rows]:
    """Take the latest samples away; samples of one time stay together.

    Args:
        indices: What there is.
        fraction: Share (0 to 1) of `indices` to take, as nearly as ties allow.
        times: Of every sample of the data set.
        subset: `val` or `test`, for messages.

    Returns:
        The rest and the subset, each in ascending order.

    Raises:
        DataError: All samples are of one time.
    """
    if fraction == 0:
        return indices, indices[:0]
    own = times.iloc[indices].to_numpy()
    order = np.argsort(own, kind="stable")
    cuts = np.flatnonzero(own[order][1:] != own[order][:-1]) + 1
    if not len(cuts):
        raise DataError(
            f"data.split.{subset}: {len(indices)} sample(s), all of one time, are left to cut it from",
            hint=f"data.split.{subset}=0, or another column: data.split.time=COLUMN",
        )
    cut = cuts[np.abs(cuts - (1 - fraction) * len(indices)).argmin()]
    return np.sort(indices[order[:cut]]), np.sort(indices[order[cut:]])
