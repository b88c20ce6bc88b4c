"""Jobs side by side on this machine, each forked from a process that has imported everything."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Literal, final

from assay.check.values import check_whole_number
from assay.errors import AssayError
from assay.sweep.checker import Checker
from assay.sweep.launcher.gpus import Gpus
from assay.sweep.launcher.launcher import Ended, Pool
from assay.sweep.worker.exit_status import Death, outcome_after
from assay.sweep.worker.fork_server import Nursery

if TYPE_CHECKING:
    from collections.abc import Sequence

    from assay.sweep.job_spec import Task

_VISIBLE: Final = "CUDA_VISIBLE_DEVICES"
_LEAVE: Final = 20.0
"""Seconds for processes that were killed to be gone."""


@final
@dataclass
class _Running:
    """A task in its process."""

    task: Task
    gpus: tuple[str, ...]
    cores: int
    told: str = ""


@final
class LocalPool(Pool):
    """Runs each job in a process of its own, forked from a shared nursery.

    Args:
        jobs_at_once: How many jobs run side by side; `auto` is as many as there are GPUs (or shares of one)
            for jobs that need them, and as the cores allow for others.
        threads_per_job: Threads of each process of a job.
        gpus: Those to lease to jobs: `auto` is every visible one, a number the first so many, a list the ids.
        jobs_per_gpu: Jobs that may share a GPU; a job that needs several gets whole ones.

    Raises:
        ConfigError: An argument is out of its range.
    """

    def __init__(
        self,
        jobs_at_once: int | Literal["auto"] = "auto",
        threads_per_job: int = 1,
        gpus: int | list[int | str] | Literal["auto"] = "auto",
        jobs_per_gpu: int = 1,
    ) -> None:
        if jobs_at_once != "auto":
            check_whole_number("hydra.launcher.jobs_at_once", jobs_at_once, 1)
        check_whole_number("hydra.launcher.threads_per_job", threads_per_job, 1)
        check_whole_number("hydra.launcher.jobs_per_gpu", jobs_per_gpu, 1)
        self._jobs_at_once, self._threads = jobs_at_once, threads_per_job
        self._asked_gpus, self._jobs_per_gpu = gpus, jobs_per_gpu
        self._known_gpus: Gpus | None = None
        self._cores = _cores()
        self._running: dict[int, _Running] = {}

    @property
    def _nursery(self) -> Nursery:
        return Nursery.shared()

    @property
    def slots(self) -> int:
        """Jobs that can run at once, of one process each and on the CPU where nothing else is known."""
        if self._jobs_at_once != "auto":
            return self._jobs_at_once
        if self._known_gpus is not None and self._known_gpus.ids:
            return len(self._known_gpus.ids) * self._jobs_per_gpu
        return max(1, self._cores // self._threads)

    @property
    def has_gpus(self) -> bool:
        """Whether there are GPUs to lease."""
        return bool(self._gpus.ids)

    def has_room(self, task: Task) -> bool:
        """Whether this task could start now.

        Args:
            task: The next one.

        Raises:
            AssayError: It asks for more GPUs than there are.
        """
        if task.gpus and not self._gpus.free(task.gpus):
            if task.gpus > len(self._gpus.ids):
                there = ", ".join(self._gpus.ids) or "none"
                raise AssayError(
                    f"job {task.number} needs {task.gpus} GPUs; there is {there}",
                    hint="device=cpu, or trainer.devices=…",
                )
            return False
        if self._jobs_at_once != "auto":
            return len(self._running) < self._jobs_at_once
        taken = sum(one.cores for one in self._running.values())
        return task.gpus > 0 or not taken or taken + self._needs(task) <= self._cores

    def start(self, task: Task) -> None:
        """Start a task and return at once.

        Args:
            task: One that there is room for.

        Raises:
            AssayError: No process can be started.
        """
        leased = self._gpus.lease(task.gpus) if task.gpus else ()
        environment = dict(task.environment)
        if task.gpus or self._known_gpus is not None:
            environment[_VISIBLE] = ",".join(leased)
        ready = replace(task, threads=self._threads, environment=environment)
        cores = 0 if task.gpus else self._needs(task)
        try:
            key = self._nursery.start(ready)
        except BaseException:
            self._give_back(leased)
            raise
        self._running[key] = _Running(ready, leased, cores)

    def wait(self, seconds: float) -> list[Ended]:
        """Wait until a task ends, or the time is over.

        Args:
            seconds: To wait at most; 0 only looks.
        """
        if not self._running:
            return []
        return [self._end(key, death) for key, death in self._nursery.wait(self._running, seconds).items()]

    def stop(self, number: int, *, now: bool) -> None:
        """Ask a task to save and end, or end it at once with all its processes.

        Args:
            number: Of its job; one that is not running is left alone.
            now: At once.
        """
        for key, one in self._running.items():
            if one.task.number == number:
                one.told = "SIGKILL" if now else one.told or "SIGTERM"
                self._nursery.stop(key, now=now)

    def close(self) -> None:
        """End whatever still runs, at once, and give everything back."""
        for one in self._running.values():
            self.stop(one.task.number, now=True)
        deadline = time.monotonic() + _LEAVE
        while self._running and time.monotonic() < deadline:
            self.wait(deadline - time.monotonic())

    # -- what jobs take ------------------------------------------------------------------------------------

    @property
    def _gpus(self) -> Gpus:
        """The GPUs; counted when a job first asks for one."""
        if self._known_gpus is None:
            self._known_gpus = Gpus(self._ids(), self._jobs_per_gpu)
        return self._known_gpus

    def _ids(self) -> Sequence[str]:
        if isinstance(self._asked_gpus, list):
            return [str(one) for one in self._asked_gpus]
        checker = Checker(self._nursery)
        try:
            count = checker.gpus()
        finally:
            checker.close()
        visible = [one.strip() for one in os.environ.get(_VISIBLE, "").split(",") if one.strip()]
        ids = (visible or [str(index) for index in range(count)])[:count]
        return ids if self._asked_gpus == "auto" else ids[: self._asked_gpus]

    def _needs(self, task: Task) -> int:
        return self._threads * task.processes

    def _give_back(self, leased: Sequence[str]) -> None:
        if leased:
            self._gpus.give_back(leased)

    def _end(self, key: int, death: Death) -> Ended:
        one = self._running.pop(key)
        self._give_back(one.gpus)
        return Ended(one.task.number, outcome_after(one.task, death, told=one.told))


def _cores() -> int:
    """Cores that this process may use; joblib knows what control groups and affinities leave."""
    import joblib  # type: ignore[import-untyped]  # it has no stubs

    return int(joblib.cpu_count())
