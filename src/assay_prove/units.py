"""Sizes and numbers of operations with three digits."""

from __future__ import annotations

from typing import TYPE_CHECKING

from assay.quoting import format_number

if TYPE_CHECKING:
    from collections.abc import Sequence

_FLOPS = ("FLOP", "kFLOP", "MFLOP", "GFLOP", "TFLOP", "PFLOP")
_BYTES = ("B", "KiB", "MiB", "GiB", "TiB")


def format_flops(count: int) -> str:
    """A number of floating-point operations with three digits."""
    return _scale(count, 1000, _FLOPS)


def format_bytes(count: int) -> str:
    """A size with three digits."""
    return _scale(count, 1024, _BYTES)


def _scale(count: float, base: int, units: Sequence[str]) -> str:
    value = float(count)
    power = 0
    while value >= 999.5 and power < len(units) - 1:  # three digits would be 1e+03
        value /= base
        power += 1
    digits = 3
    if not power or value >= 999.5:
        digits = 0
    return f"{format_number(value, digits) if digits else f'{value:,.0f}'} {units[power]}"
