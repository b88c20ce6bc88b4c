"""Jobs on a Ray cluster: Ray says where and on which GPUs, a cluster worker there runs one after another."""

from __future__ import annotations

import logging
import os
import signal
import socket
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

from typing_extensions import override

from assay.errors import AssayError, ProcessError, first_line
from assay.process import keep_handlers
from assay.record.run_lock import is_written
from assay.targets.resolve import require
from assay_sweep.job_spec import outcome_of_lost_job, signal_after
from assay_sweep.launcher.launcher import LEAVE, Count, Launcher, NumJobs, Threads
from assay_sweep.worker.fork_client import ClusterWorker

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from assay.record.run_record import Cause, Outcome
    from assay_sweep.job_spec import JobSpec

_PATIENCE = 5.0
"""Seconds for a cluster to answer."""
_AT_IMPORT = {
    "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0",  # else `uv run assay` uploads the current directory
    "RAY_DEDUP_LOGS_SKIP_REGEX": "^",  # else Ray writes about each dead worker among what the sweep says
}
"""Ray reads them when it is imported."""
_OF_RAY = (signal.SIGINT, signal.SIGTERM)
"""Ray sets handlers of its own for them."""


@final
@dataclass(eq=False)
class _Place:
    """An actor with its share of the cluster, and the job that it runs or has run last."""

    cluster_worker: Any
    needs: Mapping[str, float]
    ready: Any
    job_spec: JobSpec
    start: float = 0.0
    signal_sent: str = ""

    @property
    def key(self) -> str:
        """Of an attempt."""
        return f"{self.job_spec.number}-{self.job_spec.attempt}"


@final
class RayLauncher(Launcher):
    """Runs each job in a process of its own on a Ray cluster, which leases cores and GPUs to it.

    A place of the cluster imports torch once and forks its jobs, one after another. The cluster must see this
    machine's files under the same paths, and have the same packages.

    Args:
        address: Of a cluster; None finds one on this machine, as `ray start --head` starts it.
        jobs_at_once: How many jobs run side by side; `auto` is as many as the cluster has cores and GPUs for.
        threads_per_job: Threads of each process of a job; so many cores are leased.
        jobs_per_gpu: Jobs that may share a GPU; a job that needs several gets whole ones.
        resources: Custom resources that each job needs, by name.
        autoscaling: Whether the cluster adds machines by itself: a job that none can hold waits for one;
            `jobs_at_once` says how many may run or wait.

    Raises:
        ConfigError: Ray is not installed.
        ProcessError: No cluster answers at the address.
    """

    def __init__(
        self,
        address: str | None = None,
        jobs_at_once: NumJobs = "auto",
        threads_per_job: Threads = 1,
        jobs_per_gpu: Count = 1,
        resources: dict[str, float] | None = None,
        *,
        autoscaling: bool = False,
    ) -> None:
        self._jobs_at_once = jobs_at_once
        self._threads = threads_per_job
        self._jobs_per_gpu = jobs_per_gpu
        self._resources = resources or {}
        self._autoscaling = autoscaling
        self._ray = _import_ray()
        self._must_leave = not self._ray.is_initialized()
        if self._must_leave:
            _connect(self._ray, address or os.environ.get("RAY_ADDRESS") or "auto")
        self._idle: list[_Place] = []
        self._running: dict[Any, _Place] = {}

    @property
    @override
    def slots(self) -> int:
        if self._jobs_at_once != "auto":
            return self._jobs_at_once
        room = self._total("CPU") // self._threads
        if gpus := self._total("GPU"):
            room = min(room, gpus * self._jobs_per_gpu)
        return max(1, int(room))

    @property
    @override
    def has_gpus(self) -> bool:
        return self._total("GPU") > 0

    @override
    def has_room(self, job_spec: JobSpec) -> bool:
        needs = self._needs(job_spec)
        machines = self._machines()
        if not (self._autoscaling or any(_holds(machine, needs) for machine in machines)):
            have = (
                "; ".join(dict.fromkeys(_format_amounts(machine, needs) for machine in machines))
                or "none"
            )
            raise AssayError(
                f"job {job_spec.number} needs {_format_amounts(needs, needs)}, which no machine of the Ray "
                f"cluster has (available: {have})",
                hint="device=cpu, trainer.devices=…, such a machine in the cluster, or, where it adds "
                "machines by itself, hydra.launcher.autoscaling=true",
            )
        if self._jobs_at_once != "auto":
            return len(self._running) < self._jobs_at_once
        left = {name: self._total(name) - self._leased(name) for name in needs}
        return _holds(left, needs) or (self._autoscaling and not self._running)

    @override
    def start(self, job_spec: JobSpec) -> None:
        place = self._place(job_spec)
        place.job_spec = replace(job_spec, threads=self._threads)
        place.start = time.monotonic()
        place.signal_sent = ""
        self._running[place.cluster_worker.run.remote(place.key, place.job_spec)] = place

    @override
    def wait(self, seconds: float) -> dict[int, Outcome]:
        self._retire_idle()
        if not self._running:
            return {}
        ready, _ = self._ray.wait([*self._running], timeout=seconds)
        ended = [(self._running.pop(result), result) for result in ready]
        return {place.job_spec.number: self._end(place, result) for place, result in ended}

    @override
    def stop(self, number: int, *, now: bool) -> None:
        for place in self._running.values():
            if place.job_spec.number != number:
                continue
            place.signal_sent = signal_after(place.signal_sent, now=now)
            if self._ray.wait([place.ready], timeout=0)[0]:
                place.cluster_worker.stop.remote(place.key, now=now)
            else:
                self._release(place)

    @override
    def close(self) -> None:
        self.end_at_once(
            self._running, (place.job_spec.number for place in self._running.values())
        )
        self._idle += self._running.values()
        self._retire_idle()
        self._running = {}
        if self._must_leave:
            self._ray.shutdown()

    # -- the cluster ---------------------------------------------------------------------------------------

    def _machines(self) -> list[dict[str, float]]:
        """What each machine has now."""
        return [node["Resources"] for node in self._ray.nodes() if node["Alive"]]

    def _total(self, name: str) -> float:
        return sum(machine.get(name, 0) for machine in self._machines())

    def _leased(self, name: str) -> float:
        return sum(place.needs.get(name, 0) for place in self._running.values())

    def _needs(self, job_spec: JobSpec) -> dict[str, float]:
        needs = {"CPU": float(self._threads * job_spec.processes), **self._resources}
        if job_spec.gpus:
            needs["GPU"] = float(job_spec.gpus)
        if job_spec.gpus == 1:
            needs["GPU"] = 1 / self._jobs_per_gpu
        return needs

    # -- places --------------------------------------------------------------------------------------------

    def _place(self, job_spec: JobSpec) -> _Place:
        """An actor that holds what a job needs; one that is free, or a new one."""
        needs = self._needs(job_spec)
        for place in self._idle:
            if place.needs == needs:
                self._idle.remove(place)
                return place
        self._retire_idle()  # they hold what the new one needs
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
        return _Place(cluster_worker, needs, cluster_worker.ready.remote(), job_spec)

    def _retire_idle(self) -> None:
        """Give back what places hold that no job has taken at once."""
        for place in self._idle:
            self._release(place)
        self._idle = []

    def _release(self, place: _Place) -> None:
        """End what runs in a place, and give back what it holds."""
        self._ray.kill(place.cluster_worker)

    def _end(self, place: _Place, result: Any) -> Outcome:
        try:
            outcome: Outcome = self._ray.get(result)
        except self._ray.exceptions.RayError as error:
            self._release(place)  # one that merely cannot be reached would go on
            return self._lost(place, error)
        self._idle.append(place)
        return outcome

    def _lost(self, place: _Place, error: Exception) -> Outcome:
        """The outcome of a job whose cluster worker died, once no process writes to its run."""
        job_spec = place.job_spec
        deadline = time.monotonic() + LEAVE
        while is_written(Path(job_spec.cwd, job_spec.run_dir)) and time.monotonic() < deadline:
            time.sleep(0.1)
        cause: Cause = "killed"
        reason = f"its Ray worker died: {first_line(error).partition(': ')[0]}"
        if isinstance(error, self._ray.exceptions.OutOfMemoryError):
            cause = "out_of_memory"
            reason = "Ray ended it, as its machine ran out of memory"
        return outcome_of_lost_job(
            job_spec, time.monotonic() - place.start, place.signal_sent, cause, reason
        )


def _holds(machine: Mapping[str, float], needs: Mapping[str, float]) -> bool:
    return all(machine.get(name, 0) >= amount for name, amount in needs.items())


def _format_amounts(amounts: Mapping[str, float], names: Iterable[str]) -> str:
    return ", ".join(f"{amounts.get(name, 0):g} {name}" for name in names)


def _import_ray() -> Any:
    require("hydra.launcher", "this launcher", "ray")
    for name, value in _AT_IMPORT.items():
        os.environ.setdefault(name, value)
    if not os.environ.keys().isdisjoint(("RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH")):
        # else no token is sent to an address that was named
        os.environ.setdefault("RAY_AUTH_MODE", "token")
    import ray

    return ray


def _connect(ray: Any, address: str) -> None:
    host, _, port = address.rpartition("://")[2].partition("?")[0].rpartition(":")
    try:
        if host:  # if nothing answers there, Ray itself would wait for minutes
            socket.create_connection((host.strip("[]"), int(port)), timeout=_PATIENCE).close()
        with keep_handlers(_OF_RAY):
            ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
    except (
        OSError,
        RuntimeError,
        ValueError,
        ImportError,
        SystemExit,
        ray.exceptions.RayError,
    ) as error:
        raise ProcessError(
            f"no Ray cluster answers at {address}: {getattr(error, 'strerror', None) or first_line(error)}",
            hint="hydra.launcher.address=HOST:PORT of one that runs, or start one here: ray start --head; "
            "if it asks for a token: RAY_AUTH_TOKEN=… or RAY_AUTH_TOKEN_PATH=FILE",
        ) from error
