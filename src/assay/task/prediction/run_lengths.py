"""Whole numbers as a short text: the bytes that each of thousands of tokens stands for, in one line."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

_RUN: Final = re.compile(r"([0-9]{1,9})(?:\*([0-9]{1,7}))?")
_MOST: Final = 10_000_000


def run_lengths(values: Sequence[int]) -> str:
    """Numbers as a text, equal neighbours once.

    Args:
        values: Of each token.

    >>> run_lengths([0, 0, 1, 1, 1, 2, 7])
    '0*2 1*3 2 7'
    """
    runs: list[list[int]] = []
    for value in values:
        if runs and runs[-1][0] == value:
            runs[-1][1] += 1
        else:
            runs.append([value, 1])
    return " ".join(f"{value}*{count}" if count > 1 else str(value) for value, count in runs)


def from_run_lengths(text: str) -> list[int]:
    """What `run_lengths` has written.

    Args:
        text: Perhaps of a stranger's.

    Raises:
        ValueError: It is something else.
    """
    values: list[int] = []
    for run in text.split():
        match = _RUN.fullmatch(run)
        if match is None or len(values) + int(match[2] or 1) > _MOST:
            raise ValueError(f"{run!r:.40} is not NUMBER or NUMBER*COUNT")
        values += [int(match[1])] * int(match[2] or 1)
    return values
