"""What was probably meant, and what there is to choose from."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

_MOST = 24
_ALIKE = 0.75
"""From this likeness on, however many letters differ."""
_ELSEWHERE = {
    "lr": "optimizer.lr",
    "wd": "optimizer.weight_decay",
    "epochs": "trainer.max_epochs",
    "num_epochs": "trainer.max_epochs",
    "n_epochs": "trainer.max_epochs",
    "steps": "trainer.max_steps",
    "gpus": "trainer.devices",
    "bs": "data.batch_size",
    "workers": "data.num_workers",
    "dataset": "data",
    "network": "model",
    "criterion": "loss",
    "output_dir": "hydra.run.dir",
    "run_dir": "hydra.run.dir",
}
"""What other programs call it."""
_ALSO_CALLED = {
    "path": "root",
    "root": "path",
    "file": "path",
    "csv": "path",
    "data_dir": "root",
    "learning_rate": "lr",
    "epochs": "max_epochs",
    "steps": "max_steps",
}
"""What other programs or other sources call a key beside it."""
_RESUME = ("ckpt_path", "checkpoint", "resume", "resume_from_checkpoint", "ckpt")


def did_you_mean(word: str, candidates: Iterable[str], before: str = "") -> str:
    """`did you mean 'x'?` or an empty string."""
    names = list(candidates)
    swapped = [name for name in names if sorted(name) == sorted(word)]
    stem = word.removesuffix("s")
    longer = sorted((name for name in names if len(stem) > 1 and name.startswith(stem)), key=len)
    close = [name for name in names if name == _ALSO_CALLED.get(word)] or swapped or longer
    close = close or [
        name for name in difflib.get_close_matches(word, names, cutoff=0.6) if _is_near(word, name)
    ]
    close = close or [name for name in names if len(name) > 2 and word.startswith(name)]  # validation: val
    return f"{before}did you mean {close[0]!r}?" if close else ""


def _is_near(word: str, name: str) -> bool:
    """Whether what differs is a slip; a subset or node that both begin with says nothing."""
    *nodes, typed = word.replace("/", ".").split(".")
    *others, meant = name.replace("/", ".").split(".")
    if nodes != others:
        typed = word
        meant = name
    if difflib.SequenceMatcher(None, typed, meant).ratio() >= _ALIKE:
        return True
    return 3 * _count_edits(typed, meant) <= max(3, len(typed))


def _count_edits(word: str, other: str) -> int:
    """Levenshtein's distance."""
    row: list[int] = [*range(len(other) + 1)]
    for number, letter in enumerate(word, 1):
        before = row
        row = [number]
        for column, second in enumerate(other):
            changed = before[column] + int(letter != second)
            row.append(min(changed, before[column + 1] + 1, row[column] + 1))
    return row[-1]


def list_names(candidates: Iterable[str], word: str = "") -> str:
    """List names in one line; of very many, only those nearest to what was typed."""
    names = list(candidates)
    if len(names) <= _MOST:
        return ", ".join(names)
    near = difflib.get_close_matches(word, names, n=_MOST, cutoff=0.0) if word else names[:_MOST]
    return ", ".join([name for name in names if name in near]) + f", … ({len(names)} in all)"


def guess_key(word: str, keys: Iterable[str]) -> str:
    """The full key that an unread key was probably meant to be, or a command; empty where none is near."""
    of_logger = word.startswith("logger")  # which has a path, too
    all_keys = [key for key in keys if "._" not in key and (of_logger or not key.startswith("logger."))]
    parent, _, last = word.rpartition(".")
    if not parent and word in _RESUME:
        return "assay resume RUN continues a run"
    if not parent and _ELSEWHERE.get(word) in (*all_keys, "hydra.run.dir"):
        return _ELSEWHERE[word]
    if whole := [key for key in all_keys if key.endswith(f".{word}")]:
        return min(whole, key=len)
    names = (last, _ALSO_CALLED.get(last))
    if same := [key for key in all_keys if key.rpartition(".")[2] in names]:
        inside = [key for key in same if parent and key.startswith(f"{parent}.")]
        return max(inside or same, key=lambda key: (key == last, _depth_and_likeness(key, word)))
    beside = [key for key in all_keys if key.rpartition(".")[0] == parent and parent]
    for among in (beside, all_keys):
        leaves = {
            key.rpartition(".")[2]: key for key in sorted(among, key=lambda key: (-key.count("."), key))
        }
        swapped = [name for name in leaves if sorted(name) == sorted(last)]
        if close := swapped or difflib.get_close_matches(last, leaves, n=1, cutoff=_ALIKE):
            return leaves[close[0]]
    return next(iter(difflib.get_close_matches(word, all_keys, n=1, cutoff=0.85)), "")


def _depth_and_likeness(key: str, word: str) -> tuple[int, float]:
    return -abs(key.count(".") - word.count(".")), difflib.SequenceMatcher(None, key, word).ratio()
