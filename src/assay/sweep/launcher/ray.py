"""Jobs on a Ray cluster: Ray says where and on which GPUs, a cluster worker there runs one after another."""

from __future__ import annotations

import itertools
import os
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final, Literal, final

from typing_extensions import override

from assay.config.serialize import MOST_THREADS, check_whole_number
from assay.errors import AssayError, first_line
from assay.record.outcome import Outcome
from assay.record.run_lock import is_written
from assay.sweep.launcher import cluster
from assay.sweep.launcher.cluster import ClusterWorker
from assay.sweep.launcher.launcher import Launcher
from assay.sweep.worker.exit_status import outcome_of_lost

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from assay.record.outcome import Cause
    from assay.sweep.job_spec import JobSpec

_LEAVE: Final = 20.0
"""Seconds for jobs whose cluster worker died, or that were killed, to save and end."""
_IDLE: Final = 5.0
"""Seconds without a job after which a place gives its share of the cluster back."""


@final
@dataclass(eq=False)
class _Place:
    """An actor with its share of the cluster."""

    cluster_worker: Any
    needs: Mapping[str, float]
    ready: Any
    is_ready: bool = False
    free: float = 0.0


@final
@dataclass(eq=False)
class _Running:
    job_spec: JobSpec
    key: int
    place: _Place
    start: float = field(default_factory=time.monotonic)
    signal_sent: str = ""


@final
class RayLauncher(Launcher):
    """Runs each job in a process of its own on a Ray cluster, which leases cores and GPUs to it.

    A place of the cluster imports torch once and forks its jobs, one after another. The cluster must see this
    machine's files under the same paths, and have the same packages.

    Args:
        address: Of a cluster; `auto` finds one on this machine. None starts one for this sweep, here.
        jobs_at_once: How many jobs run side by side; `auto` is as many as the cluster has cores and GPUs for.
        threads_per_job: Threads of each process of a job; so many cores are leased.
        jobs_per_gpu: Jobs that may share a GPU; a job that needs several gets whole ones.
        resources: Custom resources that each job needs, by name.

    Raises:
        ConfigError: An argument is out of its range, or Ray is not installed.
        ProcessError: No cluster answers at the address.
    """

    def __init__(
        self,
        address: str | None = None,
        jobs_at_once: int | Literal["auto"] = "auto",
        threads_per_job: int = 1,
        jobs_per_gpu: int = 1,
        resources: dict[str, float] | None = None,
    ) -> None:
        if jobs_at_once != "auto":
            check_whole_number("hydra.launcher.jobs_at_once", jobs_at_once, 1)
        check_whole_number("hydra.launcher.threads_per_job", threads_per_job, 1, MOST_THREADS)
        check_whole_number("hydra.launcher.jobs_per_gpu", jobs_per_gpu, 1)
        self._ray = cluster.package()
        if address is not None:
            cluster.knock(address)
        self._address, self._jobs_at_once, self._threads = address, jobs_at_once, threads_per_job
        self._jobs_per_gpu, self._resources = jobs_per_gpu, resources or {}
        self._is_joined = self._must_leave = False
        self._own: IO[bytes] | None = None  # a cluster of this sweep
        self._environment: dict[str, str] | None = None
        self._idle: list[_Place] = []
        self._running: dict[Any, _Running] = {}
        self._keys = itertools.count()

    @property
    @override
    def slots(self) -> int:
        if self._jobs_at_once != "auto":
            return self._jobs_at_once
        room, gpus = self._total("CPU") // self._threads, self._total("GPU")
        return max(1, int(min(room, gpus * self._jobs_per_gpu) if gpus else room))

    @property
    @override
    def has_gpus(self) -> bool:
        return self._total("GPU") > 0

    @override
    def has_room(self, job_spec: JobSpec) -> bool:
        needs, machines = self._needs(job_spec), self._machines()
        if not any(all(machine.get(name, 0) >= needs[name] for name in needs) for machine in machines):
            have = "; ".join(dict.fromkeys(_in_words(machine, needs) for machine in machines)) or "none"
            raise AssayError(
                f"job {job_spec.number} needs {_in_words(needs, needs)}, which no machine of the Ray cluster "
                f"has (there is: {have})",
                hint="device=cpu, trainer.devices=…, or add such a machine to the cluster",
            )
        if self._jobs_at_once != "auto":
            return len(self._running) < self._jobs_at_once
        return all(
            amount + sum(running.place.needs.get(name, 0) for running in self._running.values())
            <= self._total(name)
            for name, amount in needs.items()
        )

    @override
    def start(self, job_spec: JobSpec) -> None:
        job_spec = replace(job_spec, threads=self._threads)
        place = self._place(self._needs(job_spec))
        key = next(self._keys)
        result = place.cluster_worker.run.remote(key, job_spec.to_json(), self._environment)
        self._running[result] = _Running(job_spec, key, place)

    @override
    def wait(self, seconds: float) -> dict[int, Outcome]:
        self._release()
        ready, _ = self._ray.wait(list(self._running), timeout=seconds) if self._running else ([], [])
        if ready:  # and whatever else has ended
            ready, _ = self._ray.wait(list(self._running), num_returns=len(self._running), timeout=0)
        ended = [(self._running.pop(result), result) for result in ready]
        return {running.job_spec.number: self._end(running, result) for running, result in ended}

    @override
    def waits(self, number: int) -> bool:
        return any(not self._is_ready(running.place) for running in self._of(number))

    @override
    def stop(self, number: int, *, now: bool) -> None:
        for running in self._of(number):
            running.signal_sent = "SIGKILL" if now else running.signal_sent or "SIGTERM"
            if self._is_ready(running.place):
                running.place.cluster_worker.stop.remote(running.key, now=now)
            else:
                self._ray.kill(running.place.cluster_worker)

    @override
    def close(self) -> None:
        for running in list(self._running.values()):
            self.stop(running.job_spec.number, now=True)
        deadline = time.monotonic() + _LEAVE
        while self._running and time.monotonic() < deadline:
            self.wait(deadline - time.monotonic())
        places = [*self._idle, *(running.place for running in self._running.values())]
        self._retire(places)
        self._running = {}
        if self._must_leave:
            self._ray.shutdown()
        self._is_joined = self._must_leave = False
        if self._own is not None:
            self._own.close()
            self._own = None

    # -- the cluster ---------------------------------------------------------------------------------------

    def _machines(self) -> list[dict[str, float]]:
        """What each machine has now; the cluster is joined, or started, when a job first asks for it."""
        if not self._is_joined:
            if not self._ray.is_initialized():
                cores = 0 if self._jobs_at_once == "auto" else self._jobs_at_once * self._threads
                self._own = cluster.join(self._ray, self._address, cores)
                self._environment = None if self._own is None else dict(os.environ)
                self._must_leave = True
            self._is_joined = True
        return [node["Resources"] for node in self._ray.nodes() if node["Alive"]]

    def _total(self, name: str) -> float:
        return sum(machine.get(name, 0) for machine in self._machines())

    def _needs(self, job_spec: JobSpec) -> dict[str, float]:
        cores, machines = float(self._threads * job_spec.processes), self._machines()
        if self._environment is not None:  # one machine: as in a local sweep, a job too large runs alone
            cores = min([cores, *(machine["CPU"] for machine in machines)])
        needs = {"CPU": cores, **self._resources}
        if job_spec.gpus:
            needs["GPU"] = 1 / self._jobs_per_gpu if job_spec.gpus == 1 else float(job_spec.gpus)
        return needs

    # -- places --------------------------------------------------------------------------------------------

    def _place(self, needs: Mapping[str, float]) -> _Place:
        """An actor that holds this; one that is free, or a new one."""
        for place in self._idle:
            if place.needs == needs:
                self._idle.remove(place)
                return place
        self._retire(self._idle)  # they hold what the new one needs
        cluster_worker = (
            self._ray.remote(ClusterWorker)
            .options(
                num_cpus=needs["CPU"],
                num_gpus=needs.get("GPU", 0),
                resources=self._resources or None,
                max_concurrency=3,  # run, stop and ready
                max_restarts=0,
                max_task_retries=0,
            )
            .remote()
        )
        return _Place(cluster_worker, needs, cluster_worker.ready.remote())

    def _release(self) -> None:
        """Give back what idle places hold: at once where a job waits for a place."""
        waits = not all(self._is_ready(running.place) for running in self._running.values())
        self._retire([place for place in self._idle if waits or time.monotonic() - place.free > _IDLE])

    def _is_ready(self, place: _Place) -> bool:
        if not place.is_ready:
            place.is_ready = bool(self._ray.wait([place.ready], timeout=0)[0])
        return place.is_ready

    def _retire(self, places: list[_Place]) -> None:
        closing = [place.cluster_worker.close.remote() for place in places if self._is_ready(place)]
        if closing:
            self._ray.wait(closing, num_returns=len(closing), timeout=_LEAVE)
        for place in places:
            self._ray.kill(place.cluster_worker)
        self._idle = [place for place in self._idle if place not in places]

    def _of(self, number: int) -> list[_Running]:
        return [running for running in self._running.values() if running.job_spec.number == number]

    def _end(self, running: _Running, result: Any) -> Outcome:
        try:
            outcome = Outcome.from_json(self._ray.get(result))
        except self._ray.exceptions.RayError as error:
            self._ray.kill(running.place.cluster_worker)  # one that merely cannot be reached would go on
            return self._lost(running, error)
        running.place.free = time.monotonic()
        self._idle.append(running.place)
        return outcome

    def _lost(self, running: _Running, error: Exception) -> Outcome:
        """How a job ended whose cluster worker died, once nobody writes its run any more."""
        job_spec = running.job_spec
        deadline = time.monotonic() + _LEAVE
        while is_written(Path(job_spec.cwd, job_spec.run_dir)) and time.monotonic() < deadline:
            time.sleep(0.1)
        cause: Cause = "killed"
        reason = f"its Ray worker died: {first_line(error).partition(': ')[0]}"
        if isinstance(error, self._ray.exceptions.OutOfMemoryError):
            cause, reason = "out_of_memory", "Ray ended it, as its machine ran out of memory"
        return outcome_of_lost(job_spec, time.monotonic() - running.start, running.signal_sent, cause, reason)


def _in_words(amounts: Mapping[str, float], names: Iterable[str]) -> str:
    return ", ".join(f"{amounts.get(name, 0):g} {name}" for name in names)
