"""What was probably meant, and what there is to choose from."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

_MOST = 12


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """`did you mean 'x'?` or an empty string.

    Args:
        word: What was typed.
        known: What could have been meant.

    >>> did_you_mean("optimizr", ["optimizer", "model"])
    "did you mean 'optimizer'?"
    >>> did_you_mean("modle", ["module", "model"])
    "did you mean 'model'?"
    >>> did_you_mean("val/acc", ["val/auroc", "val/accuracy"])
    "did you mean 'val/accuracy'?"
    >>> did_you_mean("zzz", ["optimizer", "model"])
    ''
    """
    names = list(known)
    swapped = [name for name in names if sorted(name) == sorted(word)]
    longer = sorted((name for name in names if word and name.startswith(word)), key=len)
    close = swapped or longer or difflib.get_close_matches(word, names, n=1, cutoff=0.6)
    return f"did you mean {close[0]!r}?" if close else ""


def named(known: Iterable[str], word: str = "") -> str:
    """Names in one line; of very many only those nearest to what was typed.

    Args:
        known: All of them, in their order.
        word: What was typed.

    >>> named(["adam", "sgd"])
    'adam, sgd'
    >>> named([f"name{n}" for n in range(30)], "name17").count("name")
    12
    """
    names = list(known)
    if len(names) <= _MOST:
        return ", ".join(names)
    near = difflib.get_close_matches(word, names, n=_MOST, cutoff=0.0) if word else names[:_MOST]
    return ", ".join([name for name in names if name in near]) + f", … ({len(names)} in all)"
