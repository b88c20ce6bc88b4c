"""What a search looks for: scores that are to be small or large, and bounds on others."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, final

from assay.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_DIRECTIONS: Final[dict[str, Literal["minimize", "maximize"]]] = {
    "min": "minimize",
    "minimize": "minimize",
    "max": "maximize",
    "maximize": "maximize",
}
_CONSTRAINT: Final = re.compile(r"\s*(\S+)\s*(<=|>=)\s*(\S+)\s*")


@final
@dataclass(frozen=True)
class Objective:
    """One score to optimize.

    Attributes:
        name: Of the metric; None stands for the one that the best checkpoint is chosen by.
        direction: `minimize` or `maximize`.
    """

    name: str | None
    direction: Literal["minimize", "maximize"]


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

        Args:
            metrics: Of the job.

        >>> read_constraints(["val/latency <= 3"])[0].excess({"val/latency": 5.0})
        2.0
        """
        value = metrics.get(self.name, math.nan)
        return math.inf if math.isnan(value) else self.sign * (value - self.bound)


def read_objectives(
    objective: str | Sequence[str] | None, direction: str | Sequence[str] | None
) -> tuple[Objective, ...]:
    """What `hydra.sweeper.objective` and `hydra.sweeper.direction` say.

    Args:
        objective: Name of a metric, or several.
        direction: `minimize` or `maximize` (`min`, `max`), of each; one alone stands for all.

    Raises:
        ConfigError: They do not fit one another.

    >>> read_objectives(["val/loss", "val/accuracy"], ["min", "max"])[1]
    Objective(name='val/accuracy', direction='maximize')
    """
    names = [objective] if isinstance(objective, str) or objective is None else list(objective)
    directions = [direction or "minimize"] if isinstance(direction, str | None) else list(direction)
    if len(directions) == 1:
        directions *= len(names)
    if len(directions) != len(names) or not names:
        raise ConfigError(
            f"{len(names)} objectives have {len(directions)} directions",
            key="hydra.sweeper.direction",
            hint="hydra.sweeper.objective=[val/loss,val/f1] hydra.sweeper.direction=[minimize,maximize]",
        )
    for one in directions:
        if one not in _DIRECTIONS:
            raise ConfigError(
                f"{one!r} is no direction", key="hydra.sweeper.direction", hint="minimize, or maximize"
            )
    return tuple(Objective(name, _DIRECTIONS[one]) for name, one in zip(names, directions, strict=True))


def read_constraints(constraints: Sequence[str]) -> tuple[Constraint, ...]:
    """What `hydra.sweeper.constraints` says.

    Args:
        constraints: Such as `val/latency <= 3`.

    Raises:
        ConfigError: One is no bound.
    """
    found = []
    for text in constraints:
        match = _CONSTRAINT.fullmatch(str(text))
        try:
            bound = float(match[3]) if match else math.nan
        except ValueError:
            bound = math.nan
        if match is None or not math.isfinite(bound):
            raise ConfigError(
                f"{text!r} is no bound on a metric",
                key="hydra.sweeper.constraints",
                hint="hydra.sweeper.constraints=['val/latency <= 3']",
            )
        found.append(Constraint(match[1], 1 if match[2] == "<=" else -1, bound))
    return tuple(found)


def score(name: str | None, metrics: Mapping[str, float], best: Mapping[str, Any]) -> float | None:
    """The score of a job: that of its best checkpoint where this was chosen by it, else the last.

    Args:
        name: Of the metric; None for the one that the best checkpoint is chosen by.
        metrics: Last value of each.
        best: `monitor` and `value` of the best checkpoint; empty without one.

    Returns:
        None where the job has none.
    """
    value = best.get("value") if name is None or best.get("monitor") == name else metrics.get(name)
    return None if value is None or math.isnan(value) else float(value)
