"""An n-gram model of bytes with interpolated Kneser-Ney smoothing: language modelling before networks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray


def kneser_ney_bits(train: bytes, test: bytes, order: int = 5, discount: float = 0.75) -> float:
    """Bits per byte of a text (Chen and Goodman 1999, *An empirical study of smoothing techniques*, eq. 23).

    Args:
        train: What is counted.
        test: What is predicted, from its byte number `order` on.
        order: Bytes of an n-gram, at most 7.
        discount: Taken from each count.
    """
    shares = np.full(len(test) - order + 1, 1 / 256)
    for n in range(1, order + 1):
        # Lower orders count in how many contexts an n-gram stands, not how often.
        grams = _grams(train, n) if n == order else np.unique(_grams(train, n + 1)) % 256**n
        known, counts = np.unique(grams, return_counts=True)
        contexts, of = np.unique(known // 256, return_inverse=True)
        asked = _grams(test, n)[order - n :]
        count = _looked_up(known, counts, asked)
        total = _looked_up(contexts, np.bincount(of, counts), asked // 256)
        kinds = _looked_up(contexts, np.bincount(of), asked // 256)
        mixed = (np.maximum(count - discount, 0) + discount * kinds * shares) / np.maximum(total, 1)
        shares = np.where(total > 0, mixed, shares)
    return float(-np.log2(shares).mean())


def _grams(text: bytes, n: int) -> NDArray[np.int64]:
    """Each n-gram as a number."""
    values = np.frombuffer(text, np.uint8).astype(np.int64)
    windows = np.lib.stride_tricks.sliding_window_view(values, n)
    return windows @ 256 ** np.arange(n - 1, -1, -1, dtype=np.int64)


def _looked_up(keys: NDArray[np.int64], values: NDArray[Any], asked: NDArray[np.int64]) -> NDArray[Any]:
    at = np.minimum(np.searchsorted(keys, asked), len(keys) - 1)
    return np.where(keys[at] == asked, values[at], 0)
