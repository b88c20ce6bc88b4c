"""Student's t-distribution; SciPy has it too, and takes longer to import than a thousand records to read."""

from __future__ import annotations

import functools
import math


def p_value(t: float, freedom: float) -> float:
    """The probability of a value as far from 0 as one, or farther: I_x(ν/2, 1/2) with x = ν / (ν + t²).

    Source: Abramowitz and Stegun, "Handbook of Mathematical Functions", 26.7.1 and 26.5.27.

    Args:
        t: The value.
        freedom: Degrees of freedom ν, above 0.

    >>> round(p_value(2.0, 10), 6)
    0.073388
    """
    x, rest = freedom / (freedom + t * t), t * t / (freedom + t * t)
    a = freedom / 2
    if x < (a + 1) / (a + 2.5):
        return _incomplete_beta(x, rest, a, 0.5)
    return 1 - _incomplete_beta(rest, x, 0.5, a)


@functools.cache
def quantile(level: float, freedom: int) -> float:
    """The value such that one lies between it and its negative with a probability.

    Args:
        level: The probability, such as 0.95; below 1.
        freedom: Degrees of freedom, above 0.

    >>> round(quantile(0.95, 2), 6)
    4.302653
    """
    low, high = 0.0, 1.0
    while p_value(high, freedom) > 1 - level:
        low, high = high, 2 * high
    while low < (middle := (low + high) / 2) < high:
        low, high = (middle, high) if p_value(middle, freedom) > 1 - level else (low, middle)
    return high


def _incomplete_beta(x: float, rest: float, a: float, b: float) -> float:
    """I_x(a, b), regularised, for x < (a + 1) / (a + b + 2); by its continued fraction (DLMF 8.17.22).

    Args:
        x: Of 0 to 1.
        rest: 1 - x, which may be far smaller than x is precise.
        a: Above 0.
        b: Above 0.
    """
    if x == 0:
        return 0.0
    fraction = 1.0
    for m in range(40 + int(2 * math.sqrt(a + b)), -1, -1):  # the terms that count grow as √max(a, b)
        n = a + 2 * m
        fraction = 1 + (m + 1) * (b - m - 1) * x / ((n + 1) * (n + 2)) / fraction
        fraction = 1 - (a + m) * (a + b + m) * x / (n * (n + 1)) / fraction
    log_beta = math.lgamma(a) + math.lgamma(b) - math.lgamma(a + b)
    return math.exp(a * math.log(x) + b * math.log(rest) - log_beta) / (a * fraction)
