"""Columns from which a target can be read off. No torch."""

from __future__ import annotations

from math import lgamma
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from pandas.api.types import is_numeric_dtype

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from assay.data.core.types import Bools, Floats, Frame, Strings, Values

_ROWS = 20
"""Below this many, one column may follow another by chance."""
_ROUNDING = 1e-12
_SAMPLE_ROUNDING = 1e-9
_MOST_CLASSES = 20
_MOST_ROWS = 5000
"""That are looked at before all of them are."""
_FEW = 100
"""In most of which some order is already not kept."""
_BY_CHANCE = -20.0
"""Logarithm of the probability of what is reported, if the column had nothing to do with the target."""
_FEWEST = 12
"""Rows of a class beside a threshold."""
_VALLEY = 1.25
"""Of drawn tables this finds 97 % of the thresholds, and 0.4 % of the classes that lie apart."""


def find_leak(frame: Frame, features: Strings, target: str) -> tuple[str, str]:
    """The first feature that equals the target, and how; two empty texts if there is none."""
    sample = _sample(frame)
    for name in features:
        if not _describe_relation(sample[[name, target]].dropna(), _SAMPLE_ROUNDING):
            continue
        both = frame[[name, target]].dropna()
        if len(both) >= _ROWS and (how := _describe_relation(both, _ROUNDING)):
            return name, how
    return "", ""


def _sample(frame: Frame) -> Frame:
    """Rows in which what holds of all of them is looked for first."""
    return frame.iloc[:: max(1, len(frame) // _MOST_ROWS)]


def _describe_relation(both: Frame, rounding: float) -> str:
    """How a target, the second column, equals a feature, the first one; they have no gaps."""
    feature = both.iloc[:, 0]
    target = both.iloc[:, 1]
    different = target.nunique()
    is_linear = is_numeric_dtype(feature) and is_numeric_dtype(target) and different > 2
    if is_linear:
        with np.errstate(all="ignore"):
            apart = 1 - abs(np.corrcoef(*both.to_numpy(dtype=float).T)[0, 1])
        if not apart < rounding:
            return ""
    elif different < 2 or not different == feature.nunique() == len(both.drop_duplicates()):
        return ""
    if feature.astype(str).equals(target.astype(str)):
        return "the two columns are equal"
    if is_linear:
        return "the target is a linear function of it"
    if 2 * different > len(target):
        return ""
    return f"each of its {different} values stands for one of the target"


def find_hints(frame: Frame, features: Strings, target: str) -> dict[str, str]:
    """Features that decide the target without being equal to it, and how."""
    frame = frame.dropna(subset=[target])
    sample = _sample(frame)
    hints = dict[str, str]()
    for name in features:
        if _describe_hint(sample[name], sample[target]):
            how = _describe_hint(frame[name], frame[target])
            if how:
                hints |= {name: how}
    return hints


def _describe_hint(feature: Values, target: Values) -> str:
    classes = pd.factorize(target)[0]
    if len(target) < _ROWS or classes.max() < 1:
        return ""
    how = _describe_gaps(feature.isna().to_numpy(), classes, target)
    is_there = feature.notna().to_numpy()
    values = feature[is_there]
    if is_numeric_dtype(target) and is_numeric_dtype(values) and len(values) >= _ROWS and not how:
        how = _describe_order(values.to_numpy(np.float64), target[is_there].to_numpy(np.float64))
    classes = classes[is_there]
    different = len(np.unique(classes))
    if (
        how
        or len(values) < _ROWS
        or not 2 <= different <= _MOST_CLASSES
        or values.dtype.kind == "M"
    ):
        return how
    if is_numeric_dtype(values):
        numbers = values.to_numpy(dtype=np.float64)
        order = np.argsort(numbers, kind="stable")
        borders = np.flatnonzero(np.diff(classes[order])) + 1
        if len(borders) == different - 1:
            return _describe_threshold(numbers[order], classes[order], borders)
        if values.nunique() > _MOST_CLASSES:
            return ""
    return _describe_groups(pd.factorize(values)[0], classes)


def _describe_gaps(missing: Bools, classes: NDArray[np.intp], target: Values) -> str:
    """Of a column that has no value in the rows of one target value, and in no others, or the reverse."""
    if not missing.any() or missing.all() or _log_ways(np.bincount(missing)) < -_BY_CHANCE:
        return ""
    for rows, what in ((missing, "missing"), (~missing, "present")):
        alike = np.unique(classes[rows])
        if len(alike) == 1 and not (classes[~rows] == alike[0]).any():
            return f"it is {what} exactly where the target is {str(target[rows].iloc[0])!r}"
    return ""


def _describe_order(numbers: Floats, target: Floats) -> str:
    """Of a number in whose order the target only rises, or only falls."""
    rises = any(
        all(_rises_with(sign * numbers[:count], target[:count]) for count in (_FEW, len(target)))
        for sign in (1, -1)
    )
    if rises and min(len(np.unique(numbers)), len(np.unique(target))) > _MOST_CLASSES:
        return "the target only rises, or only falls, with it"
    return ""


def _rises_with(numbers: Floats, target: Floats) -> bool:
    return bool((np.diff(target[np.lexsort((target, numbers))]) >= 0).all())


def _describe_groups(codes: NDArray[np.intp], classes: NDArray[np.intp]) -> str:
    """Of a category each value of which occurs with one class."""
    counts = pd.crosstab(codes, classes).to_numpy()
    if ((counts > 0).sum(1) > 1).any():
        return ""
    logs = np.log(counts.sum(0) / counts.sum())
    # of the logarithm, for the chance itself is 0 in 64 bits where a value has a thousand rows
    by_chance = sum(np.logaddexp.reduce(size * logs) for size in counts.sum(1) if size > 1)
    if by_chance > _BY_CHANCE:
        return ""
    return f"each of its {len(counts):,} values occurs with one class of the target alone"


def _describe_threshold(
    numbers: Floats, classes: NDArray[np.intp], borders: NDArray[np.intp]
) -> str:
    """Of a number that is cut into the classes.

    Classes that lie apart by nature have few rows between them, a valley at the border; one that is drawn
    through a column has none.
    """
    if (numbers[borders] == numbers[borders - 1]).any() or _log_ways(
        np.bincount(classes)
    ) < -_BY_CHANCE:
        return ""
    ends = [0, *borders, len(numbers)]
    if 2 * sum(_is_valley(numbers, *ends[at : at + 3]) for at in range(len(borders))) > len(
        borders
    ):
        return ""
    middles = ", ".join(
        f"{(numbers[border - 1] + numbers[border]) / 2:.6g}" for border in borders
    )
    return f"the target changes where it passes {middles}"


def _is_valley(numbers: Floats, first: int, border: int, end: int) -> bool:
    """Whether values lie farther apart at a border than on both of its sides; also of too few to tell."""
    fewest = min(border - first, end - border)
    if fewest < _FEWEST:
        return True
    near = max(_FEWEST // 3, fewest // 6)
    left = numbers[max(first, border - 3 * near) : border - near + 1]
    right = numbers[border + near - 1 : min(end, border + 3 * near)]
    apart = [
        float(np.diff(part).mean())
        for part in (left, numbers[border - near : border + near], right)
    ]
    return apart[1] > _VALLEY * max(apart[0], apart[2])


def _log_ways(sizes: NDArray[np.intp]) -> float:
    """Logarithm of the number of ways to order rows of so many of each class."""
    return lgamma(sizes.sum() + 1) - sum(lgamma(size + 1) for size in sizes)
