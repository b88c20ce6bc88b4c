from __future__ import annotations

import time
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import msgspec

from assay.config.serialize import MOST_THREADS
from assay.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from assay.record.run_record import Outcome
    from assay_sweep.job_spec import JobSpec


Count = Annotated[int, msgspec.Meta(ge=1)]
NumJobs = Count | Literal["auto"]
LEAVE = 20.0
"""Seconds for processes that were killed to be gone."""
Threads = Annotated[int, msgspec.Meta(ge=1, le=MOST_THREADS)]


class Launcher(ABC):
    """Runs each job in a process of its own; whatever a job does, no method but `start` raises for it.

    What is not required stands for a launcher that starts what it is given at once and ends it with itself.

    Attributes:
        keeps_files: Whether it is made with the sweep's directory, for files of its own.
    """

    keeps_files: ClassVar[bool] = False

    @property
    @abstractmethod
    def slots(self) -> int:
        """Jobs that can run at once."""

    @property
    @abstractmethod
    def has_gpus(self) -> bool:
        """Whether there are GPUs, which `device=auto` then takes."""

    @abstractmethod
    def has_room(self, job_spec: JobSpec) -> bool:
        """Whether this job could start now; always true for one that can ever start while nothing runs.

        Raises:
            AssayError: It can never run here: it asks for more than there is.
        """

    def check_nodes(self, job_spec: JobSpec) -> None:
        """Refuse a job on more nodes than there are.

        Raises:
            ConfigError: There are never so many, or none that has what the job needs on each.
        """
        if job_spec.nodes > 1:
            raise ConfigError(
                f"job {job_spec.number} needs {job_spec.nodes} nodes, and this launcher has one for each job",
                key="trainer.num_nodes",
                hint="hydra/launcher=slurm, torchrun on each machine without -m, or trainer.num_nodes=1",
            )

    @abstractmethod
    def start(self, job_spec: JobSpec) -> None:
        """Start a job and return at once.

        Args:
            job_spec: One that there is room for.
        """

    @abstractmethod
    def wait(self, seconds: float) -> dict[int, Outcome]:
        """Wait until a job ends, or the time is over.

        Args:
            seconds: To wait at most; 0 only looks.

        Returns:
            By number of the job, what it said itself, or what the launcher knows of the end of its process.
        """

    def kept(self) -> Collection[int]:
        """Jobs of this sweep that have gone on without their driver; `start` takes each up again."""
        return ()

    @abstractmethod
    def stop(self, number: int, *, now: bool) -> None:
        """Ask a job to save and end (SIGTERM), or end it at once with all its processes (SIGKILL).

        `wait` still reports it; a job that is not running is ignored.

        Args:
            number: Of its job.
            now: At once.
        """

    def end_at_once(self, running: Mapping[Any, Any], numbers: Iterable[int]) -> None:
        """Have jobs end at once, and wait until none of them runs any more."""
        for number in list(numbers):
            self.stop(number, now=True)
        deadline = time.monotonic() + LEAVE
        while running and time.monotonic() < deadline:
            self.wait(deadline - time.monotonic())

    @abstractmethod
    def close(self) -> None:
        """End whatever still runs, at once, and give everything back."""
