"""Integers that pass for random, as a pure function of other integers.

SplitMix64: Steele, Lea and Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014.
"""

from __future__ import annotations

_MASK = (1 << 64) - 1


def splitmix64(state: int) -> int:
    """One output of the generator: a bijection of 64-bit numbers."""
    state = state + 0x9E3779B97F4A7C15 & _MASK
    state = (state ^ (state >> 30)) * 0xBF58476D1CE4E5B9 & _MASK
    state = (state ^ (state >> 27)) * 0x94D049BB133111EB & _MASK
    return state ^ (state >> 31)


def mix(*numbers: int) -> int:
    """Hash integers to one of 63 bits, so that neighbouring (seed, epoch) pairs share nothing."""
    state = 0
    for number in numbers:
        state = splitmix64(state ^ (number & _MASK))
    return state >> 1
