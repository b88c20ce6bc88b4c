"""Texts cut into training, validation and test, none of which shares a window with another."""

from __future__ import annotations

import hashlib
from itertools import accumulate
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_ORDER = ("train", "val", "test")


class Text(NamedTuple):
    """What a file holds, or a piece of it.

    Attributes:
        name: Of the file, within its folder.
        text: Decoded.
    """

    name: str
    text: str


def by_files(texts: Sequence[Text], shares: Mapping[str, float], seed: int) -> dict[str, list[Text]]:
    """Whole texts, drawn until a subset has its share of the characters; each in the order of the texts.

    The draw goes by names, so that another file moves few of the others.

    Args:
        texts: All of them.
        shares: Of `test` and `val`; one of 0 gets none.
        seed: Of the draw.
    """
    drawn = sorted(
        range(len(texts)), key=lambda at: hashlib.sha256(f"{seed}:{texts[at].name}".encode()).digest()
    )
    total = sum(len(one.text) for one in texts)
    chosen: dict[str, list[int]] = {}
    for subset in ("test", "val"):  # test first, so that the share of validation leaves it as it is
        chosen[subset] = []
        size = 0
        while drawn and size < shares[subset] * total:
            chosen[subset].append(drawn.pop(0))
            size += len(texts[chosen[subset][-1]].text)
    chosen["train"] = drawn
    return {subset: [texts[at] for at in sorted(chosen[subset])] for subset in _ORDER if chosen[subset]}


def by_tail(texts: Sequence[Text], shares: Mapping[str, float]) -> dict[str, list[Text]]:
    """The end of all texts in their order is the test subset, what comes before it the validation subset.

    A text that a cut meets is cut at the end of a line.

    Args:
        texts: All of them.
        shares: Of `test` and `val`; one of 0 gets none.
    """
    starts = [0, *accumulate(len(one.text) for one in texts)]
    total = starts[-1]
    test_from = total - round(shares["test"] * total)
    bounds = {"train": 0, "val": test_from - round(shares["val"] * total), "test": test_from}
    cuts = [_after_line(texts, starts, bounds[subset]) for subset in _ORDER] + [total]
    subsets: dict[str, list[Text]] = {}
    for subset, low, high in zip(_ORDER, cuts, cuts[1:], strict=False):
        pieces = [
            Text(one.name, one.text[max(0, low - start) : high - start])
            for one, start in zip(texts, starts, strict=False)
            if max(low, start) < min(high, start + len(one.text))
        ]
        if pieces:
            subsets[subset] = pieces
    return subsets


def _after_line(texts: Sequence[Text], starts: Sequence[int], at: int) -> int:
    """The end of the line that a position lies in, where that is near."""
    for one, start in zip(texts, starts, strict=False):
        if start < at < start + len(one.text):
            end = one.text.find("\n", at - start - 1, at - start + 10_000)
            return start + end + 1 if end >= 0 else at
    return at
