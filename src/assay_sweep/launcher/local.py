"""Jobs side by side on this machine, each forked from a process that has imported everything."""

from __future__ import annotations

import os
from collections import Counter
from contextlib import closing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Literal, final

import msgspec
from typing_extensions import override

from assay.errors import AssayError, ConfigError
from assay.record.provenance import usable_cores
from assay_sweep.job_spec import ExitStatus, outcome_after, signal_after
from assay_sweep.launcher.launcher import Count, Launcher, NumJobs, Threads
from assay_sweep.worker.fork_client import CheckProcess, ForkServer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from assay.record.run_record import Outcome
    from assay_sweep.job_spec import JobSpec

_VISIBLE = "CUDA_VISIBLE_DEVICES"


@final
class Gpus:
    """Leases GPUs: one of several a job, or a share of one."""

    def __init__(self, ids: Sequence[str], jobs_per_gpu: int = 1) -> None:
        self.ids = list(dict.fromkeys(ids))
        self._shares = jobs_per_gpu
        self._used: Counter[str] = Counter()

    def free(self, number: int) -> bool:
        """Whether so many could be leased now."""
        return len(self._candidates(number)) >= number

    def lease(self, number: int) -> tuple[str, ...]:
        """Take GPUs; the least used first."""
        chosen = tuple(self._candidates(number)[:number])
        self._used.update(chosen * self._shares_of_each(number))
        return chosen

    def give_back(self, leased: Sequence[str]) -> None:
        """Give GPUs back."""
        self._used.subtract(tuple(leased) * self._shares_of_each(len(leased)))

    def _candidates(self, number: int) -> list[str]:
        most = self._shares - self._shares_of_each(number)
        return sorted(
            (gpu for gpu in self.ids if self._used[gpu] <= most), key=self._used.__getitem__
        )

    def _shares_of_each(self, number: int) -> int:
        if number > 1:
            return self._shares
        return 1


@final
@dataclass
class _Running:
    job_spec: JobSpec
    gpus: tuple[str, ...]
    signal_sent: str = ""


@final
class LocalLauncher(Launcher):
    """Runs each job in a process of its own, forked from a shared fork server.

    Args:
        jobs_at_once: How many jobs run side by side; `auto` is as many as there are GPUs (or shares of one)
            for jobs that need them, and as the cores allow for others.
        threads_per_job: Threads of each process of a job.
        gpus: Those to lease to jobs: `auto` is every visible one, a number the first so many, a list the ids.
        jobs_per_gpu: Jobs that may share a GPU; a job that needs several gets whole ones.

    Raises:
        ConfigError: A GPU is named twice.
    """

    def __init__(
        self,
        jobs_at_once: NumJobs = "auto",
        threads_per_job: Threads = 1,
        gpus: Annotated[int, msgspec.Meta(ge=0)] | list[int | str] | Literal["auto"] = "auto",
        jobs_per_gpu: Count = 1,
    ) -> None:
        if isinstance(gpus, list) and len(set(map(str, gpus))) < len(gpus):
            raise ConfigError(
                f"{gpus} names a GPU twice",
                key="hydra.launcher.gpus",
                hint="hydra.launcher.jobs_per_gpu=2",
            )
        self._jobs_at_once = jobs_at_once
        self._threads = threads_per_job
        self._asked_gpus = gpus
        self._jobs_per_gpu = jobs_per_gpu
        self._known_gpus: Gpus | None = None
        self._cores = usable_cores()
        self._running: dict[int, _Running] = {}

    @property
    @override
    def slots(self) -> int:
        if self._jobs_at_once != "auto":
            return self._jobs_at_once
        if self._known_gpus is not None and self._known_gpus.ids:
            return len(self._known_gpus.ids) * self._jobs_per_gpu
        return max(1, self._cores // self._threads)

    @property
    @override
    def has_gpus(self) -> bool:
        return bool(self._gpus.ids)

    @override
    def has_room(self, job_spec: JobSpec) -> bool:
        if job_spec.gpus and not self._gpus.free(job_spec.gpus):
            if job_spec.gpus > len(self._gpus.ids):
                available = ", ".join(self._gpus.ids) or "none"
                raise AssayError(
                    f"job {job_spec.number} needs {job_spec.gpus} GPUs; there is {available}",
                    hint="device=cpu, or trainer.devices=…",
                )
            return False
        if self._jobs_at_once != "auto":
            return len(self._running) < self._jobs_at_once
        on_cpu = [one.job_spec for one in self._running.values() if not one.gpus]
        processes = sum(other.processes for other in (*on_cpu, job_spec))
        return job_spec.gpus > 0 or not on_cpu or self._threads * processes <= self._cores

    @override
    def start(self, job_spec: JobSpec) -> None:
        leased: tuple[str, ...] = ()
        if job_spec.gpus:
            leased = self._gpus.lease(job_spec.gpus)
        environment = dict(job_spec.environment)
        if self._known_gpus is not None:  # a lease has made them known
            environment[_VISIBLE] = ",".join(leased)
        ready = replace(job_spec, threads=self._threads, environment=environment)
        self._running[ForkServer.shared().start(ready)] = _Running(ready, leased)

    @override
    def wait(self, seconds: float) -> dict[int, Outcome]:
        if not self._running:
            return {}
        ended = ForkServer.shared().wait(self._running, seconds)
        return dict(self._end(key, exit_status) for key, exit_status in ended.items())

    @override
    def stop(self, number: int, *, now: bool) -> None:
        for key, running in self._running.items():
            if running.job_spec.number == number:
                running.signal_sent = signal_after(running.signal_sent, now=now)
                ForkServer.shared().stop(key, now=now)

    @override
    def close(self) -> None:
        self.end_at_once(
            self._running, (running.job_spec.number for running in self._running.values())
        )

    # -- what jobs take ------------------------------------------------------------------------------------

    @property
    def _gpus(self) -> Gpus:
        """The GPUs; counted when a job first asks for one."""
        if self._known_gpus is None:
            self._known_gpus = Gpus(self._ids(), self._jobs_per_gpu)
        return self._known_gpus

    def _ids(self) -> Sequence[str]:
        if isinstance(self._asked_gpus, list):
            return [str(gpu) for gpu in self._asked_gpus]
        with closing(CheckProcess(ForkServer.shared())) as process:
            count = process.gpus()
        visible = [gpu.strip() for gpu in os.environ.get(_VISIBLE, "").split(",") if gpu.strip()]
        ids = (visible or [str(index) for index in range(count)])[:count]
        if self._asked_gpus == "auto":
            return ids
        return ids[: self._asked_gpus]

    def _end(self, key: int, exit_status: ExitStatus) -> tuple[int, Outcome]:
        running = self._running.pop(key)
        if running.gpus:
            self._gpus.give_back(running.gpus)
        outcome = outcome_after(running.job_spec, exit_status, signal_sent=running.signal_sent)
        return running.job_spec.number, outcome
