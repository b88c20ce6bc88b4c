"""What was probably meant, and what there is to choose from."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

_MOST = 20
_NEAR = 2 / 3
"""From this likeness on, a slip: one letter of three."""
_ALIKE = 0.75
_ELSEWHERE = {
    "epochs": "trainer.max_epochs",
    "num_epochs": "trainer.max_epochs",
    "steps": "trainer.max_steps",
    "gpus": "trainer.devices",
    "lr": "optimizer.lr",
    "learning_rate": "optimizer.lr",
    "wd": "optimizer.weight_decay",
    "bs": "data.batch_size",
    "workers": "data.num_workers",
    "output_dir": "hydra.run.dir",
}
"""What other programs call it."""


def did_you_mean(word: str, candidates: Iterable[str], before: str = "") -> str:
    """`did you mean 'x'?` or an empty string."""
    names = list(candidates)
    stem = word.removesuffix("s")
    longer = sorted((name for name in names if len(stem) > 1 and name.startswith(stem)), key=len)
    swapped = [name for name in names if sorted(name) == sorted(word)]
    close = (
        swapped
        or longer
        or [
            name
            for name in difflib.get_close_matches(word, names, cutoff=0.6)
            if _is_near(word, name)
        ]
    )
    # validation: val
    close = close or [name for name in names if len(name) > 2 and word.startswith(name)]
    if close:
        return f"{before}did you mean {close[0]!r}?"
    return ""


def _is_near(word: str, name: str) -> bool:
    """Whether what differs is a slip; a subset or node that both begin with says nothing."""
    *nodes, typed = word.replace("/", ".").split(".")
    *others, meant = name.replace("/", ".").split(".")
    if nodes != others:
        typed = word
        meant = name
    return difflib.SequenceMatcher(None, typed, meant).ratio() >= _NEAR


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
    if _ELSEWHERE.get(word) in (*all_keys, "hydra.run.dir"):
        return _ELSEWHERE[word]
    if whole := [key for key in all_keys if key.endswith(f".{word}")]:
        return min(whole, key=len)
    parent, _, last = word.rpartition(".")
    inside = [key for key in all_keys if parent and key.startswith(f"{parent}.")]
    for among in (inside, all_keys):
        names = {key.rpartition(".")[2] for key in among}
        swapped = [name for name in names if sorted(name) == sorted(last)]
        close = swapped or difflib.get_close_matches(last, sorted(names), n=1, cutoff=_ALIKE)
        if same := [key for key in among if key.rpartition(".")[2] in close]:
            return max(
                same,
                key=lambda key: (
                    -abs(key.count(".") - word.count(".")),
                    difflib.SequenceMatcher(None, key, word).ratio(),
                ),
            )
    return next(iter(difflib.get_close_matches(word, all_keys, n=1, cutoff=0.85)), "")
