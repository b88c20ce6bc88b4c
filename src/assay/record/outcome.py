"""How an attempt at a job ended."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import Any, Final, Literal, final

TRIAL: Final = "ASSAY_TRIAL"
"""Environment variable that tells a job's processes which trial of a study it is; see `JobSpec.trial`."""
State = Literal["done", "failed", "pruned", "interrupted"]
Cause = Literal["", "exception", "out_of_memory", "killed", "timed_out", "non_finite", "cannot_write"]


@final
@dataclass(frozen=True)
class Outcome:
    """How an attempt at a job ended, as plain data.

    Attributes:
        state: `done`, `failed`, `pruned` by the search, or `interrupted` from outside.
        cause: Kind of the failure; empty for the other states.
        reason: One line for people.
        transient: Whether another attempt could end differently; an error in the config, in code or in the
            numbers comes again.
        metrics: Last value of each scalar.
        best: Monitored metric, its value and the epoch of the best checkpoint.
        seconds: It took.
    """

    state: State
    cause: Cause = ""
    reason: str = ""
    transient: bool = False
    metrics: dict[str, float] = field(default_factory=dict)
    best: dict[str, Any] = field(default_factory=dict)
    seconds: float = 0.0

    def to_json(self) -> str:
        """One line of JSON; numbers that are not finite as Python writes them."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Outcome:
        """Read `to_json` back.

        Args:
            text: One line of JSON.

        >>> outcome = Outcome("done", metrics={"val/loss": float("inf")})
        >>> Outcome.from_json(outcome.to_json()) == outcome
        True
        """
        return cls(**json.loads(text))
