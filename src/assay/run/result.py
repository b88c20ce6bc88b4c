"""What a run came to."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, final

from assay.record.outcome import exit_code

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from assay.record.outcome import Cause, Status

OWN_LOOPS: Final = "its trainer has loops of its own: it cannot be resumed"


@final
@dataclass(frozen=True)
class RunResult:
    """What a run came to.

    Attributes:
        run_dir: Where everything about it lies.
        status: `finished`, `failed`, `interrupted` or `pruned`.
        metrics: Last value of each scalar, such as `test/accuracy`.
        best: Monitored metric, its value and the epoch of the best checkpoint; empty without one.
        overrides: What was typed.
        seconds: From start to end.
        reason: How it ended, when not well.
        signal: Name of the signal that interrupted it.
        cause: Kind of the failure; see `assay.record.outcome.Cause`.
        warnings: What the test says of a model that is of no use, such as that it predicts one class for all.
    """

    run_dir: Path
    status: Status
    metrics: Mapping[str, float] = field(default_factory=dict)
    best: Mapping[str, Any] = field(default_factory=dict)
    overrides: Sequence[str] = ()
    seconds: float = 0.0
    reason: str = ""
    signal: str = ""
    cause: Cause = ""
    warnings: Sequence[str] = ()

    @property
    def can_be_resumed(self) -> bool:
        """Whether it was interrupted, and `assay resume` goes on with it."""
        return self.status == "interrupted" and OWN_LOOPS not in self.reason

    @property
    def exit_code(self) -> int:
        """0 finished or pruned, 130 stopped by hand, 129 terminal closed, 143 told to stop, 1 otherwise."""
        return exit_code(self.status, self.signal)
