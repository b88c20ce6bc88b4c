"""Bounds on metrics that a search keeps to."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, final

from assay.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_CONSTRAINT: Final = re.compile(r"\s*(\S+)\s*(<=|>=)\s*(\S+)\s*")


@final
@dataclass(frozen=True)
class Constraint:
    """A bound that a metric must keep.

    Attributes:
        name: Of the metric.
        sign: 1 for a metric that may not be above the bound, -1 for one that may not be below it.
        bound: The bound.
    """

    name: str
    sign: int
    bound: float

    def excess(self, metrics: Mapping[str, float]) -> float:
        """How far a job is beyond the bound: 0 or less where it keeps it, infinite where nobody knows.

        >>> read_constraints(["val/latency <= 3"])[0].excess({"val/latency": 5.0})
        2.0
        """
        value = metrics.get(self.name, math.nan)
        return math.inf if math.isnan(value) else self.sign * (value - self.bound)


def read_constraints(constraints: Sequence[str]) -> tuple[Constraint, ...]:
    """What `hydra.sweeper.constraints` says.

    Args:
        constraints: Such as `val/latency <= 3`.

    Raises:
        ConfigError: One is not a bound.
    """
    parsed = []
    for text in constraints:
        match = _CONSTRAINT.fullmatch(str(text))
        try:
            bound = float(match[3]) if match else math.nan
        except ValueError:
            bound = math.nan
        if match is None or not math.isfinite(bound):
            raise ConfigError(
                f"{text!r} is not a bound on a metric",
                key="hydra.sweeper.constraints",
                hint="hydra.sweeper.constraints=['val/latency <= 3']",
            )
        parsed.append(Constraint(match[1], 1 if match[2] == "<=" else -1, bound))
    return tuple(parsed)
