"""Columns of a table that hold the target under another name. Imports no torch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from assay.data.tabular.column_kind import is_number

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pandas import Series

_ROWS = 20
"""Below this many, one column may follow another by chance."""
_ROUNDING = 1e-6


def leak(frame: pd.DataFrame, features: Sequence[str], target: str) -> tuple[str, str]:
    """The first feature from which the target can be read off, and how; two empty texts where there is none.

    That is a column equal to the target, a one-to-one recoding of its classes (a name for each number), or
    the same quantity in another unit (`a * target + b`, but for rounding).

    Args:
        frame: The table.
        features: Columns that are predicted from.
        target: Column that is predicted.

    >>> rows = pd.DataFrame({"code": [1, 2] * 20, "kind": ["a", "b"] * 20})
    >>> leak(rows, ["code"], "kind")
    ('code', 'each of its 2 values stands for one of the target')
    """
    for name in features:
        both = frame[[name, target]].dropna()
        if len(both) < _ROWS:
            continue
        if how := _how(both[name], both[target]):
            return name, how
    return "", ""


def _how(feature: Series[Any], target: Series[Any]) -> str:
    if feature.astype(str).equals(target.astype(str)):
        return "the two columns are equal" if target.nunique() > 1 else ""
    if is_number(feature) and is_number(target) and target.nunique() > 2:
        return _in_another_unit(feature.to_numpy(dtype=float), target.to_numpy(dtype=float))
    different = target.nunique()
    if different < 2 or feature.nunique() != different or 2 * different > len(target):
        return ""
    pairs = pd.DataFrame({"feature": feature, "target": target}).drop_duplicates()
    return f"each of its {different} values stands for one of the target" if len(pairs) == different else ""


def _in_another_unit(feature: np.ndarray[Any, Any], target: np.ndarray[Any, Any]) -> str:
    with np.errstate(all="ignore"):
        spread = feature.std()
        if not (np.isfinite(spread) and spread > 0 and target.std() > 0):
            return ""
        slope = ((feature - feature.mean()) * (target - target.mean())).mean() / spread**2
        rest = target - target.mean() - slope * (feature - feature.mean())
    if np.abs(rest).max() > _ROUNDING * target.std():
        return ""
    return f"the target is {slope:.4g} times it, plus a constant"
