"""Large numbers as people read them."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

_FLOPS = ("FLOP", "kFLOP", "MFLOP", "GFLOP", "TFLOP", "PFLOP")
_BYTES = ("B", "KiB", "MiB", "GiB", "TiB")


def in_flops(count: int) -> str:
    """A number of floating-point operations with three digits.

    Args:
        count: A multiplication and an addition are two.

    >>> in_flops(231_702_528), in_flops(0)
    ('232 MFLOP', '0 FLOP')
    """
    return _scaled(count, 1000, _FLOPS)


def in_bytes(count: int) -> str:
    """A size with three digits.

    Args:
        count: Bytes.

    >>> in_bytes(4_317_502)
    '4.12 MiB'
    """
    return _scaled(count, 1024, _BYTES)


def _scaled(count: float, base: int, units: Sequence[str]) -> str:
    power = min(int(math.log(count, base)) if count >= 1 else 0, len(units) - 1)
    value = count / base**power
    return f"{value:.0f} {units[0]}" if not power else f"{value:.3g} {units[power]}"
