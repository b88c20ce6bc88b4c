"""Texts of a column as a few numbers, by the character n-grams that they share. No torch."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from assay.data.core.types import Floats

_BUCKETS = 4096
_WIDTH = 30
_MOST_TEXTS = 10_000
_EXPLAINED = 0.1
"""Least share of the variance that the numbers keep; of random ids they keep next to nothing."""
_AT_ONCE = 20_000


def learn_ngrams(texts: Sequence[str]) -> str:
    """What encodes texts such as these, as plain text; empty where they share too few n-grams.

    Counts of n-grams are hashed, weighted by their rarity and projected on their main directions (TF-IDF and
    a truncated SVD, as in the `StringEncoder` of skrub).
    """
    from sklearn.decomposition import TruncatedSVD  # type: ignore[import-untyped]  # it ships no types
    from sklearn.feature_extraction.text import TfidfTransformer  # type: ignore[import-untyped]

    sample = texts[:: max(1, len(texts) // _MOST_TEXTS)]
    width = min(_WIDTH, len(set(sample)) - 1)
    if width < 1:
        return ""
    counts = _count_ngrams(sample)
    weighting = TfidfTransformer()
    directions = TruncatedSVD(width, random_state=0)
    directions.fit(weighting.fit_transform(counts))
    if not directions.explained_variance_ratio_.sum() >= _EXPLAINED:
        return ""
    learned = np.vstack([weighting.idf_, directions.components_]).astype("<f4")
    return base64.b64encode(learned.tobytes()).decode("ascii")


def ngram_width(learned: str) -> int:
    """How many numbers stand for a text."""
    return (
        len(learned) * 3 // 4 // (4 * _BUCKETS) - 1
    )  # of base64 and float32; not decoded: asked often


def encode_ngrams(texts: Sequence[str], learned: str) -> Floats:
    """Float64 `[N, F]`; zeros for a text without an n-gram."""
    from sklearn.preprocessing import normalize  # type: ignore[import-untyped]  # it ships no types

    unpacked = _unpack(learned).astype(np.float64)
    weights = unpacked[0]
    directions = unpacked[1:].T
    encoded = [np.empty((0, directions.shape[1]))]
    for start in range(0, len(texts), _AT_ONCE):
        counts = _count_ngrams(texts[start : start + _AT_ONCE])
        encoded.append(normalize(counts.multiply(weights).tocsr()) @ directions)
    return np.concatenate(encoded)


def _unpack(learned: str) -> NDArray[np.float32]:
    return np.frombuffer(base64.b64decode(learned), "<f4").reshape(-1, _BUCKETS)


def _count_ngrams(texts: Sequence[str]) -> Any:
    from sklearn.feature_extraction.text import HashingVectorizer

    hashing = HashingVectorizer(
        analyzer="char_wb",
        ngram_range=(3, 4),
        n_features=_BUCKETS,
        norm=None,
        alternate_sign=False,
    )
    return hashing.transform(texts)
