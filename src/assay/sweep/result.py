"""What a sweep has come to."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, final

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from assay.sweep.journal import Entry
    from assay.sweep.objective import Objective


@final
@dataclass(frozen=True)
class SweepResult:
    """What a sweep has come to.

    Attributes:
        directory: Where everything about it lies.
        entries: Its jobs, in order.
        objectives: What they are compared by; the first one decides.
        total: Jobs that it asks for.
        stopped: Exit code of the signal that ended it early; 0 otherwise.
        run_dirs: Of the jobs, by number, where they are not called by it.
    """

    directory: Path
    entries: tuple[Entry, ...]
    objectives: tuple[Objective, ...]
    total: int
    stopped: int = 0
    run_dirs: Mapping[int, Path] = field(default_factory=dict)

    def run_dir(self, entry: Entry) -> Path:
        """Where a job writes.

        Args:
            entry: Of the job.
        """
        return self.run_dirs.get(entry.number, self.directory / str(entry.number))

    @property
    def exit_code(self) -> int:
        """0 where every job is done or pruned; 130, 143 or 129 for a sweep that was stopped; 1 otherwise."""
        if self.stopped:
            return self.stopped
        whole = len(self.entries) == self.total
        return 0 if whole and all(one.state in ("done", "pruned") for one in self.entries) else 1
