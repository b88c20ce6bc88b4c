"""What gives away a model that has learnt nothing: one answer to all, or no better a score than one has."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from assay.quoting import number_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray


_FEWEST_OTHERS: Final = 3
"""Samples of which something else is right, from which on one answer to all is told: fewer may be missed."""
_SAME: Final = 1e-3
"""Of the targets' standard deviation: numbers that differ by less are one."""
_TOKENS_PER_KIND: Final = 10
"""From which on the frequencies of tokens in a test say something of those in the language."""


def class_warnings(
    right: NDArray[Any], said: NDArray[Any], names: Sequence[str], samples: str, who: str = "the model"
) -> list[str]:
    """Whether one class is said of all samples."""
    return count_warnings(np.bincount(right), np.bincount(said), names, samples, who)


def count_warnings(
    are: NDArray[Any], claimed: NDArray[Any], names: Sequence[str], samples: str, who: str = "the model"
) -> list[str]:
    """As `class_warnings`, from how many are of each class and are said to be."""
    if are.sum() - are.max(initial=0) < _FEWEST_OTHERS or claimed.max() < claimed.sum():
        return []
    return [f"{who} predicts {_name(names, int(claimed.argmax()))} for each of {samples}"]


def value_warnings(right: NDArray[Any], said: NDArray[Any], names: Sequence[str], samples: str) -> list[str]:
    """Whether one number is said of all samples."""
    told = []
    for name, target, value in zip(names, right.T.astype(float), said.T.astype(float), strict=True):
        of, others = (f" of {name!r}" if len(names) > 1 else ""), (target != np.median(target)).sum()
        if others >= _FEWEST_OTHERS and np.ptp(value) <= _SAME * target.std():
            about = "" if np.ptp(value) == 0 else "about "
            told.append(
                f"the model predicts a value{of} of {about}{number_text(value.mean(), 5)} "
                f"for each of {samples}"
            )
    return told


def label_warnings(right: NDArray[Any], said: NDArray[Any], names: Sequence[str], samples: str) -> list[str]:
    """Whether the same labels are said of all samples."""
    if not right.size or (right != (right.mean(0) > 0.5)).any(1).sum() < _FEWEST_OTHERS:
        return []
    chosen = " + ".join(_name(names, int(label)) for label in said[0].nonzero()[0]) or "no label"
    return [f"the model predicts {chosen} for each of {samples}"] if (said == said[0]).all() else []


def embedding_warnings(outputs: NDArray[Any], samples: str) -> list[str]:
    """Whether all embeddings are one."""
    if len(outputs) < _FEWEST_OTHERS or np.ptp(outputs, 0).max() > 1e-6 * np.abs(outputs).max():
        return []
    return [f"the model gives each of {samples} the same embedding"]


def token_warnings(bits: NDArray[Any], tokens: NDArray[Any], samples: str) -> list[str]:
    """Whether the same probabilities at each position would do as well."""
    counts = np.unique(tokens, return_counts=True)[1]
    shares = counts / counts.sum()
    entropy, mean = float(-(shares @ np.log2(shares))), float(bits.mean(dtype=float))
    if counts.sum() < _TOKENS_PER_KIND * len(counts) or len(counts) < 2 or mean < entropy:
        return []
    return [
        f"the model needs {mean:.3f} bits per token of {samples}: not better than giving each token its "
        f"frequency there, whatever comes before it ({entropy:.3f})"
    ]


def _name(names: Sequence[str], label: int) -> str:
    return repr(names[label]) if names else f"class {label}"
