"""One axis of parallel coordinates: where values lie on it, and what is written beside it."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from assay.quoting import number_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

_WORDS: Final = 12
_NUMBERS: Final = 5


def parallel_axis(
    values: Sequence[float | str], *, log: bool
) -> tuple[NDArray[Any], list[tuple[float, str]]]:
    """Values from 0, the lowest, to 1; texts in alphabetical order.

    Args:
        values: One per row.
        log: Whether the axis is logarithmic; what is not positive has no place on it then.

    Returns:
        `[N]`, NaN for what has no place; and place and text of each tick.

    >>> parallel_axis([0.001, 0.1, 0.01], log=True)
    (array([0. , 1. , 0.5]), [(0.0, '0.001'), (0.5, '0.01'), (1.0, '0.1')])
    """
    if any(isinstance(value, str) for value in values):
        words = sorted({str(value) for value in values})
        places = np.linspace(0, 1, len(words)) if len(words) > 1 else np.array([0.5])
        place = dict(zip(words, places.tolist(), strict=True))
        shown = words[:: math.ceil(len(words) / _WORDS)]
        return np.array([place[str(value)] for value in values]), [(place[word], word) for word in shown]
    numbers = np.asarray(values, dtype=float)
    if log:
        numbers = np.log10(np.where(numbers > 0, numbers, np.nan))
    finite = numbers[np.isfinite(numbers)]
    if not len(finite):
        return np.full(len(numbers), np.nan), []
    low, high = float(finite.min()), float(finite.max())
    if low == high:
        return np.where(np.isfinite(numbers), 0.5, np.nan), [(0.5, _text(low, log))]
    at = np.linspace(low, high, _NUMBERS).tolist()
    decades = list(range(math.ceil(low), math.floor(high) + 1))
    if log and len(decades) > 1:
        at = decades[:: math.ceil(len(decades) / (2 * _NUMBERS))]
    ticks = [((tick - low) / (high - low), _text(tick, log)) for tick in at]
    return np.where(np.isfinite(numbers), (numbers - low) / (high - low), np.nan), ticks


def _text(tick: float, log: bool) -> str:
    return number_text(10.0**tick if log else tick, 3)
