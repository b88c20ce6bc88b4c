"""Distributions as text: bars in eighths of a character, the same on a terminal and on a page."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

_LEVELS: Final = "▁▂▃▄▅▆▇█"
_EIGHTHS: Final = " ▏▎▍▌▋▊▉█"


def histogram(counts: Sequence[int]) -> str:
    """A column a bin; an empty bin is a dot.

    >>> histogram([0, 1, 4, 8])
    '·▁▄█'
    """
    highest = max(counts, default=0) or 1
    return "".join(_LEVELS[-(-8 * count // highest) - 1] if count else "·" for count in counts)


def bar(share: float, width: int) -> str:
    """A bar from left to right.

    Args:
        share: Of the whole width, from 0 to 1.
        width: In characters.

    >>> bar(0.5, 5)
    '██▌'
    """
    eighths = round(8 * width * share)
    return ("█" * (eighths // 8) + _EIGHTHS[eighths % 8]).strip() or ("▏" if share > 0 else "")
