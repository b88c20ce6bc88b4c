"""What was probably meant, and what there is to choose from."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

_MOST = 20


def did_you_mean(word: str, candidates: Iterable[str], before: str = "") -> str:
    """`did you mean 'x'?` or an empty string."""
    names = list(candidates)
    longer = [name for name in names if len(word) > 1 and name.startswith(word.removesuffix("s"))]
    shorter = [name for name in names if len(name) > 2 and word.startswith(name)]
    close = sorted(longer, key=len) or _closest(word, names, 0.6) or shorter
    if close:
        return f"{before}did you mean {close[0]!r}?"
    return ""


def _closest(word: str, names: list[str], cutoff: float) -> list[str]:
    """The name with the same letters, else the most alike."""
    swapped = [name for name in names if sorted(name) == sorted(word)]
    return swapped or difflib.get_close_matches(word, names, n=1, cutoff=cutoff)


def list_names(candidates: Iterable[str], word: str = "") -> str:
    """List names in one line; of very many, only those nearest to what was typed."""
    names = list(candidates)
    if len(names) <= _MOST:
        return ", ".join(names)
    if word:
        near = difflib.get_close_matches(word, names, n=_MOST, cutoff=0.0)
    else:
        near = names[:_MOST]
    return ", ".join([name for name in names if name in near]) + f", … ({len(names)} in all)"


def guess_key(word: str, keys: Iterable[str]) -> str:
    """The full key that an unread key was probably meant to be; empty where none is near."""
    of_logger = word.startswith("logger")  # which has a path, too
    all_keys = [
        key for key in keys if "._" not in key and (of_logger or not key.startswith("logger."))
    ]
    if whole := [key for key in all_keys if key.endswith(f".{word}")]:
        return min(whole, key=len)
    parent, _, last = word.rpartition(".")
    inside = [key for key in all_keys if parent and key.startswith(f"{parent}.")]
    for among in (inside, all_keys):
        names = {key.rpartition(".")[2] for key in among}
        close = _closest(last, sorted(names), 0.7)
        if same := [key for key in among if key.rpartition(".")[2] in close]:
            return difflib.get_close_matches(word, same, n=1, cutoff=0)[0]
    return ""
