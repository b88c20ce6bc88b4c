"""What a sweep has come to."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, final

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from assay.record.journal import JobRecord
    from assay.record.objective import Objective


@final
@dataclass(frozen=True)
class SweepResult:
    """What a sweep has come to.

    Attributes:
        directory: Where everything about it lies.
        jobs: In order.
        objectives: What they are compared by; the first one decides.
        total: Jobs that it asks for.
        stopped: Exit code of the signal that ended it early; 0 otherwise.
        run_dirs: Of the jobs, by number, where they are not called by it.
    """

    directory: Path
    jobs: tuple[JobRecord, ...]
    objectives: tuple[Objective, ...]
    total: int
    stopped: int = 0
    run_dirs: Mapping[int, Path] = field(default_factory=dict)

    def run_dir(self, job: JobRecord) -> Path:
        """Where a job writes."""
        return self.run_dirs.get(job.number, self.directory / str(job.number))

    @property
    def exit_code(self) -> int:
        """0 where every job has finished or was pruned, 130, 143 or 129 for a stopped sweep, 1 otherwise."""
        if self.stopped:
            return self.stopped
        whole = len(self.jobs) == self.total
        return 0 if whole and all(job.status in ("finished", "pruned") for job in self.jobs) else 1
