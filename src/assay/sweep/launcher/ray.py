"""Jobs on a Ray cluster: Ray says where and on which GPUs, a cluster worker there runs one after another."""

from __future__ import annotations

import errno
import logging
import os
import signal
import socket
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, final

import msgspec
from typing_extensions import override

from assay.errors import AssayError, ProcessError, first_line
from assay.process import keep_handlers
from assay.record.run_lock import is_written
from assay.sweep.job_spec import outcome_of_lost_job
from assay.sweep.launcher.launcher import LEAVE, Count, Launcher, NumJobs, Threads
from assay.sweep.worker.fork_client import ClusterWorker
from assay.targets.optional_packages import require

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from assay.record.run_record import Cause, Outcome
    from assay.sweep.job_spec import JobSpec

_PATIENCE: Final = 5.0
"""Seconds for a cluster to answer."""
_AT_IMPORT: Final = {
    "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0",  # else `uv run assay` uploads the current directory
    "RAY_DEDUP_LOGS_SKIP_REGEX": "^",  # else Ray writes about each dead worker among what the sweep says
}
"""Ray reads them when it is imported."""
_OF_RAY: Final = (signal.SIGINT, signal.SIGTERM)
"""Ray sets handlers of its own for them."""


@final
@dataclass(eq=False)
class _Place:
    """An actor with its share of the cluster, and the job that it runs or has run last.

    That of a job on several nodes has others beside it, in a placement group, and runs no second job.
    """

    cluster_worker: Any
    needs: Mapping[str, float]
    ready: Any
    job_spec: JobSpec
    others: list[Any] = field(default_factory=list)
    group: Any = None
    shares: list[Any] = field(default_factory=list)
    """What the others' runs return."""
    start: float = 0.0
    signal_sent: str = ""
    gave_up: bool = False
    """No machine that could hold it has joined in time."""
    has_moved: bool = False
    """Its job was to begin in another place, whose machine died first."""

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
        node_wait_min: Minutes that a job waits for a machine that can hold it to join, as one does where a
            cluster scales by itself; 0 fails the job at once.

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
        node_wait_min: Annotated[float, msgspec.Meta(ge=0)] = 0,
    ) -> None:
        self._jobs_at_once = jobs_at_once
        self._threads = threads_per_job
        self._jobs_per_gpu = jobs_per_gpu
        self._resources = resources or {}
        self._node_wait_min = node_wait_min
        self._given_up: list[tuple[Mapping[str, float], int]] = []
        """Needs, and nodes that have them, for which no machine has joined in time."""
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
        gpus = self._total("GPU")
        return max(1, int(min(room, gpus * self._jobs_per_gpu) if gpus else room))

    @property
    @override
    def has_gpus(self) -> bool:
        return self._total("GPU") > 0

    @override
    def has_room(self, job_spec: JobSpec) -> bool:
        needs = self._needs(job_spec)
        self.check_nodes(job_spec)
        if self._jobs_at_once != "auto":
            return len(self._running) < self._jobs_at_once
        if all(
            amount * job_spec.nodes + self._leased(name) <= self._total(name)
            for name, amount in needs.items()
        ):
            return True
        # A place that waits is what makes a cluster grow: at most to twice its size at a time.
        waiting = len(self._waiting())
        return self._node_wait_min > 0 and waiting < max(1, len(self._running) - waiting)

    @override
    def check_nodes(self, job_spec: JobSpec) -> None:
        needs = self._needs(job_spec)
        has_given_up = (needs, job_spec.nodes) in self._given_up
        if not self._fits(needs, job_spec.nodes) and (not self._node_wait_min or has_given_up):
            raise self._too_large(f"job {job_spec.number} needs", needs, job_spec.nodes)

    @override
    def start(self, job_spec: JobSpec) -> None:
        job_spec = replace(job_spec, threads=self._threads)
        place = self._place(job_spec) if job_spec.nodes == 1 else self._place_gang(job_spec)
        place.job_spec = job_spec
        place.start = time.monotonic()
        place.signal_sent = ""
        place.has_moved = False
        meeting = place.cluster_worker.meeting_place.remote(job_spec) if place.others else None
        place.shares = [
            other.run.remote(place.key, job_spec, node, meeting)
            for node, other in enumerate(place.others, start=1)
        ]
        self._running[place.cluster_worker.run.remote(place.key, job_spec, 0, meeting)] = place

    @override
    def wait(self, seconds: float) -> dict[int, Outcome]:
        self._retire_idle()
        self._give_up_waiting()
        shares = {share: result for result, place in self._running.items() for share in place.shares}
        waited = [*self._running, *shares]
        ready, _ = self._ray.wait(waited, timeout=seconds) if waited else ([], [])
        if ready:  # and whatever else has ended
            ready, _ = self._ray.wait(waited, num_returns=len(waited), timeout=0)
        done = [share for share in ready if share in shares]
        lost = [shares[share] for share in done if self._is_lost(shares[share], share)]
        ended = [(self._running.pop(result), result) for result in {*lost, *ready} if result in self._running]
        outcomes = {place.job_spec.number: self._end(place, result) for place, result in ended}
        return {number: outcome for number, outcome in outcomes.items() if outcome is not None}

    @override
    def stop(self, number: int, *, now: bool) -> None:
        for place in [place for place in self._running.values() if place.job_spec.number == number]:
            place.signal_sent = "SIGKILL" if now else place.signal_sent or "SIGTERM"
            if self._ray.wait([place.ready], timeout=0)[0]:
                for cluster_worker in (place.cluster_worker, *place.others):
                    cluster_worker.stop.remote(place.key, now=now)
            else:
                self._release(place)

    @override
    def close(self) -> None:
        self.end_at_once(self._running, (place.job_spec.number for place in self._running.values()))
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
        places = self._running.values()
        return sum(place.needs.get(name, 0) * place.job_spec.nodes for place in places)

    def _fits(self, needs: Mapping[str, float], nodes: int = 1) -> bool:
        """Whether the machines have what the nodes of a job need, leased or not."""
        return sum(_count_fits(has, needs) for has in self._machines()) >= nodes

    def _too_large(self, subject: str, needs: Mapping[str, float], nodes: int) -> AssayError:
        have = "; ".join(dict.fromkeys(_format_amounts(has, needs) for has in self._machines())) or "none"
        waited = f" and none has joined in {self._node_wait_min:g} min" if self._node_wait_min else ""
        amounts = _format_amounts(needs, needs)
        message = f"{subject} {amounts}, which no machine of the Ray cluster has{waited} (there is: {have})"
        if nodes > 1:
            message = (
                f"{subject} {nodes} nodes with {amounts} each, for which the Ray cluster has no room{waited} "
                f"(its machines have: {have})"
            )
        return AssayError(
            message,
            hint="device=cpu, trainer.devices=…, or add such a machine to the cluster; if the cluster adds "
            "machines by itself: hydra.launcher.node_wait_min=20",
        )

    def _needs(self, job_spec: JobSpec) -> dict[str, float]:
        needs = {"CPU": float(self._threads * job_spec.processes), **self._resources}
        if job_spec.gpus:
            needs["GPU"] = 1 / self._jobs_per_gpu if job_spec.gpus == 1 else float(job_spec.gpus)
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
        cluster_worker = self._start_worker(needs)
        return _Place(cluster_worker, needs, cluster_worker.ready.remote(), job_spec)

    def _place_gang(self, job_spec: JobSpec) -> _Place:
        """Actors that hold what each node of a job needs: all of them or none, on machines of their own."""
        from ray.util.placement_group import placement_group
        from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

        self._retire_idle()
        needs = self._needs(job_spec)
        machines = sum(_count_fits(machine, needs) > 0 for machine in self._machines())
        strategy = "STRICT_SPREAD" if machines >= job_spec.nodes else "SPREAD"
        group = placement_group([needs] * job_spec.nodes, strategy=strategy)
        first, *others = [
            self._start_worker(needs, scheduling_strategy=PlacementGroupSchedulingStrategy(group, node))
            for node in range(job_spec.nodes)
        ]
        return _Place(first, needs, group.ready(), job_spec, others, group)

    def _start_worker(self, needs: Mapping[str, float], **options: Any) -> Any:
        return (
            self._ray.remote(ClusterWorker)
            .options(
                num_cpus=needs["CPU"],
                num_gpus=needs.get("GPU", 0),
                resources=self._resources or None,
                max_concurrency=3,  # run, stop and ready
                max_restarts=0,
                max_task_retries=0,
                **options,
            )
            .remote()
        )

    def _waiting(self) -> list[_Place]:
        """Places that the cluster has not placed yet."""
        refs = {place.ready: place for place in self._running.values()}
        _, waiting = self._ray.wait(list(refs), num_returns=len(refs), timeout=0) if refs else ([], [])
        return [refs[ref] for ref in waiting]

    def _give_up_waiting(self) -> None:
        """End places for which no machine has joined in time."""
        too_early = time.monotonic() - self._node_wait_min * 60
        for place in self._waiting() if self._node_wait_min else ():
            nodes = place.job_spec.nodes
            if place.start <= too_early and not place.gave_up and not self._fits(place.needs, nodes):
                place.gave_up = True
                self._given_up.append((place.needs, nodes))
                self._release(place)

    def _retire_idle(self) -> None:
        """Give back what places hold that no job has taken at once."""
        for place in self._idle:
            self._release(place)
        self._idle = []

    def _release(self, place: _Place) -> None:
        """End what runs in a place, and give back what it holds."""
        for cluster_worker in (place.cluster_worker, *place.others):
            self._ray.kill(cluster_worker)
        if place.group is not None:
            from ray.util.placement_group import remove_placement_group

            remove_placement_group(place.group)

    def _is_lost(self, result: Any, share: Any) -> bool:
        """Whether a node of a job is lost, and with it the job; one that has done its share is no more."""
        place = self._running[result]
        place.shares.remove(share)
        try:
            self._ray.get(share)
        except self._ray.exceptions.RayError:
            self._release(place)
            return True
        return False

    def _end(self, place: _Place, result: Any) -> Outcome | None:
        """How a job ended; None if it begins anew, as its machine died before it began."""
        try:
            outcome: Outcome = self._ray.get(result)
        except self._ray.exceptions.RayError as error:
            self._release(place)  # one that merely cannot be reached would go on
            if self._can_move(place):
                self.start(place.job_spec)
                next(reversed(self._running.values())).has_moved = True
                return None
            return self._lost(place, error)
        if place.group is None:
            self._idle.append(place)
        else:
            self._release(place)
        return outcome

    def _can_move(self, place: _Place) -> bool:
        """Whether a place has died before it took its job, for the first time and by itself."""
        if place.gave_up or place.signal_sent or place.has_moved:
            return False
        try:
            self._ray.get(place.ready, timeout=0)
        except self._ray.exceptions.RayError:
            return True
        return False

    def _lost(self, place: _Place, error: Exception) -> Outcome:
        """The outcome of a job whose cluster worker died, once no process writes to its run."""
        job_spec = place.job_spec
        if place.gave_up:
            reason = self._too_large("it needs", place.needs, job_spec.nodes).message
            return outcome_of_lost_job(job_spec, 0.0, place.signal_sent, "exception", reason)
        deadline = time.monotonic() + LEAVE
        while is_written(Path(job_spec.cwd, job_spec.run_dir)) and time.monotonic() < deadline:
            time.sleep(0.1)
        cause: Cause = "killed"
        reason = f"its Ray worker died: {first_line(error).partition(': ')[0]}"
        if isinstance(error, self._ray.exceptions.OutOfMemoryError):
            cause = "out_of_memory"
            reason = "Ray ended it, as its machine ran out of memory"
        return outcome_of_lost_job(job_spec, time.monotonic() - place.start, place.signal_sent, cause, reason)


def _count_fits(machine: Mapping[str, float], needs: Mapping[str, float]) -> int:
    """How many nodes of a job a machine could be, leased or not."""
    return min(int(machine.get(name, 0) / amount) for name, amount in needs.items() if amount)


def _format_amounts(amounts: Mapping[str, float], names: Iterable[str]) -> str:
    return ", ".join(f"{amounts.get(name, 0):g} {name}" for name in names)


def _import_ray() -> Any:
    require("hydra.launcher", "this launcher", "ray")
    for name, value in _AT_IMPORT.items():
        os.environ.setdefault(name, value)
    if not os.environ.keys().isdisjoint(("RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH")):
        os.environ.setdefault("RAY_AUTH_MODE", "token")  # else no token is sent to an address that was named
    import ray

    return ray


def _connect(ray: Any, address: str) -> None:
    host, _, port = address.rpartition("://")[2].partition("?")[0].rpartition(":")
    try:
        if host:  # if nothing answers there, Ray itself would wait for minutes
            _greet(host.strip("[]"), int(port))
        with keep_handlers(_OF_RAY):
            ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
    except (OSError, RuntimeError, ValueError, ImportError, SystemExit, ray.exceptions.RayError) as error:
        raise ProcessError(
            f"no Ray cluster answers at {address}: {getattr(error, 'strerror', None) or first_line(error)}",
            hint="hydra.launcher.address=HOST:PORT of one that runs, or start one here: ray start --head; "
            "if it asks for a token: RAY_AUTH_TOKEN=… or RAY_AUTH_TOKEN_PATH=FILE",
        ) from error


def _greet(host: str, port: int) -> None:
    """Raise an OSError unless a server of gRPC answers: with its settings, by HTTP/2 (RFC 9113)."""
    with socket.create_connection((host, port), timeout=_PATIENCE) as connection:
        if os.environ.get("RAY_USE_TLS", "0") == "0":
            connection.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\x04\0\0\0\0\0")
            if connection.recv(4, socket.MSG_WAITALL)[3:] != b"\x04":
                raise ConnectionAbortedError(errno.ECONNABORTED, "what answers there is not Ray")
