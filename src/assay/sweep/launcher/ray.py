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
from assay.sweep.worker.exit_status import ExitStatus, outcome_after

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from assay.sweep.job_spec import JobSpec

_SIGKILL: Final = -9
_LEAVE: Final = 20.0
"""Seconds for jobs whose cluster worker died to save and end, and for those that were killed to be gone."""
_IDLE: Final = 5.0
"""Seconds without a job after which a place gives its share of the cluster back."""
_MOST_MOVES: Final = 3
"""How often a job is given another place because it was lost before the job ran."""


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
    printed: int
    """Bytes in the job's output before it: a job prints a line first of all."""
    moves: int = 0
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
            cluster.knock(self._ray, address)
        self._address, self._jobs_at_once, self._threads = address, jobs_at_once, threads_per_job
        self._jobs_per_gpu, self._resources = jobs_per_gpu, resources or {}
        self._is_joined = self._must_leave = False
        self._own: IO[bytes] | None = None  # a cluster of this sweep
        self._environment: dict[str, str] | None = None
        self._idle: list[_Place] = []
        self._running: dict[Any, _Running] = {}
        self._dying: dict[int, tuple[_Running, Outcome, float]] = {}
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
        if problem := self._lack(job_spec):
            raise AssayError(
                problem, hint="device=cpu, trainer.devices=…, or add such a machine to the cluster"
            )
        if self._jobs_at_once != "auto":
            return len(self._running) + len(self._dying) < self._jobs_at_once
        return all(
            amount + sum(running.place.needs.get(name, 0) for running in self._running.values())
            <= self._total(name)
            for name, amount in self._needs(job_spec).items()
        )

    @override
    def start(self, job_spec: JobSpec) -> None:
        self._run(replace(job_spec, threads=self._threads))

    def _run(self, job_spec: JobSpec, moves: int = 0) -> None:
        place = self._place(self._needs(job_spec))
        key = next(self._keys)
        result = place.cluster_worker.run.remote(key, job_spec.to_json(), self._environment)
        self._running[result] = _Running(job_spec, key, place, _num_bytes(job_spec), moves)

    @override
    def wait(self, seconds: float) -> dict[int, Outcome]:
        self._release()
        ended = self._dead() | self._without_machine()
        if ended or not self._running:
            time.sleep(0 if ended or not self._dying else min(seconds, 0.2))
            return ended
        ready, _ = self._ray.wait(list(self._running), timeout=seconds)
        if ready:  # and whatever else has ended
            ready, _ = self._ray.wait(list(self._running), num_returns=len(self._running), timeout=0)
        ended = {}
        for result in ready:
            ended |= self._end(self._running.pop(result), result)
        return ended

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
        while (self._running or self._dying) and time.monotonic() < deadline:
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

    def _lack(self, job_spec: JobSpec) -> str:
        """Why no machine that is there now could ever run a job; empty where one could."""
        needs, machines = self._needs(job_spec), self._machines()
        if any(all(machine.get(name, 0) >= needs[name] for name in needs) for machine in machines):
            return ""
        have = "; ".join(dict.fromkeys(_in_words(machine, needs) for machine in machines)) or "none"
        return (
            f"job {job_spec.number} needs {_in_words(needs, needs)}, which no machine of the Ray cluster has "
            f"(there is: {have})"
        )

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
        dying = (running for running, _, _ in self._dying.values())
        return [running for running in (*self._running.values(), *dying) if running.job_spec.number == number]

    def _end(self, running: _Running, result: Any) -> dict[int, Outcome]:
        try:
            outcome = Outcome.from_json(self._ray.get(result))
        except self._ray.exceptions.RayError as error:
            self._ray.kill(running.place.cluster_worker)  # one that merely cannot be reached would go on
            self._dying[running.key] = running, self._lost(error), time.monotonic() + _LEAVE
            return self._dead()
        running.place.free = time.monotonic()
        self._idle.append(running.place)
        return {running.job_spec.number: outcome}

    def _lost(self, error: Exception) -> Outcome:
        if isinstance(error, self._ray.exceptions.OutOfMemoryError):
            return Outcome("failed", "out_of_memory", "Ray ended it, as its machine ran out of memory")
        return Outcome("failed", "killed", f"its Ray worker died: {first_line(error).partition(': ')[0]}")

    def _without_machine(self) -> dict[int, Outcome]:
        """Jobs that wait for a place which no machine that is left could give them."""
        ended = {}
        for result, running in list(self._running.items()):
            if not self._is_ready(running.place) and (problem := self._lack(running.job_spec)):
                self._ray.kill(running.place.cluster_worker)
                del self._running[result]
                ended[running.job_spec.number] = Outcome("failed", "machine", problem)
        return ended

    def _dead(self) -> dict[int, Outcome]:
        """Jobs whose cluster worker died, once nobody writes their runs any more."""
        ended = {}
        for key, (running, lost, deadline) in list(self._dying.items()):
            job_spec = running.job_spec
            if is_written(Path(job_spec.cwd, job_spec.run_dir)) and time.monotonic() < deadline:
                continue
            del self._dying[key]
            exit_status = ExitStatus(_SIGKILL, seconds=time.monotonic() - running.start)
            outcome = outcome_after(job_spec, exit_status, signal_sent="SIGKILL")
            if outcome.status == "interrupted" and not running.signal_sent:
                if _num_bytes(job_spec) == running.printed and running.moves < _MOST_MOVES:  # not begun
                    self._retire(self._idle)  # they may be as dead, which is seen when they are asked
                    self._run(job_spec, running.moves + 1)
                    continue
                outcome = replace(lost, seconds=exit_status.seconds)
            ended[job_spec.number] = outcome
        return ended


def _in_words(amounts: Mapping[str, float], names: Iterable[str]) -> str:
    return ", ".join(f"{amounts.get(name, 0):g} {name}" for name in names)


def _num_bytes(job_spec: JobSpec) -> int:
    path = Path(job_spec.cwd, job_spec.output)
    return path.stat().st_size if path.is_file() else 0
