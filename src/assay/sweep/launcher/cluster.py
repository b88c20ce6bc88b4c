"""What launchers on clusters share: joining a Ray cluster, and one job at a time on whatever machine."""

from __future__ import annotations

import logging
import os
import signal
import socket
import tempfile
import uuid
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final, final

from assay.build.trainer_options import WORLD_SIZES
from assay.errors import ConfigError, ProcessError, first_line
from assay.process import orphans
from assay.process.stop_signals import handlers_kept
from assay.record.outcome import Outcome, reason_of
from assay.record.provenance import usable_cores
from assay.sweep.job_spec import JobSpec
from assay.sweep.worker.exit_status import outcome_after
from assay.sweep.worker.fork_client import MARK, ForkServer
from assay.targets.optional_packages import install

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


_AT_IMPORT: Final = {
    "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0",  # else `uv run assay` uploads the current directory
    "RAY_DEDUP_LOGS_SKIP_REGEX": "^",  # else Ray writes about each dead worker among what the sweep says
}
"""Ray reads them when it is imported."""
SETTINGS: Final = {
    **_AT_IMPORT,
    "RAY_USAGE_STATS_ENABLED": "0",  # nothing is sent to anybody
    "RAY_memory_monitor_refresh_ms": "0",  # the kernel ends a job of its own; Ray would end its worker
    "SPT_NOENV": "1",  # Ray's processes rename themselves: keep the variables that the guard knows them by
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    # Else its ports are open to the network, and run what they are sent: this has it listen on loopback
    # alone, as on systems on which it never joins machines.
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
}
"""For a cluster of this sweep alone."""
SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)
"""Ray sets handlers of its own for them."""
STORE: Final = 80 << 20
"""Bytes of the object store, which holds nothing but outcomes; Ray's least."""

_PATIENCE: Final = 5.0
"""Seconds for a cluster to answer."""


def join(ray: Any, address: str | None, cores: int) -> IO[bytes] | None:
    """Join a cluster, or start one on this machine."""
    quiet = {"log_to_driver": False, "logging_level": logging.ERROR, "configure_logging": True}
    if address is not None:
        with handlers_kept(SIGNALS), variables(_AT_IMPORT):
            try:
                ray.init(address=address, **quiet)
            except (OSError, RuntimeError, ValueError, ImportError, SystemExit) as error:
                raise _no_answer(address, error) from error
        return None
    # Ray's sockets lie in it, whose paths may be no longer than 107 characters.
    folder = Path(tempfile.mkdtemp(prefix="assay-", dir="/tmp"))
    mark = uuid.uuid4().hex
    guarded = orphans.guard(mark, str(folder))  # Ray's own guard leaves some of its processes
    with handlers_kept(SIGNALS), variables({**SETTINGS, orphans.MARK: mark}):
        constants = ray._private.ray_constants  # which has read the variable when it was imported
        joins_machines, constants.ENABLE_RAY_CLUSTER = constants.ENABLE_RAY_CLUSTER, False
        try:
            ray.init(
                address="local",
                num_cpus=max(cores, usable_cores()),
                object_store_memory=STORE,
                include_dashboard=False,
                _temp_dir=str(folder),
                **quiet,
            )
        except (ConnectionError, RuntimeError, ValueError, OSError) as error:
            guarded.close()
            raise ProcessError(f"Ray cannot be started: {first_line(error)}") from error
        finally:
            constants.ENABLE_RAY_CLUSTER = joins_machines
    return guarded


def knock(address: str) -> None:
    """Refuse an address at which nobody listens: Ray itself would wait for minutes."""
    host, _, port = address.rpartition("://")[2].partition("?")[0].rpartition(":")
    if address == "auto":
        return
    if not port.isdecimal():
        raise _no_answer(address, ValueError("expected HOST:PORT, ray://HOST:PORT or auto"))
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=_PATIENCE).close()
    except OSError as error:
        raise _no_answer(address, error) from error


def _no_answer(address: str, error: BaseException) -> ProcessError:
    return ProcessError(
        f"no Ray cluster answers at {address}: {getattr(error, 'strerror', None) or first_line(error)}",
        hint="hydra.launcher.address=HOST:PORT of one that runs, or null to start one here",
    )


def package() -> Any:
    """The package ray."""
    try:
        with variables(_AT_IMPORT):
            import ray
    except ImportError as error:
        raise ConfigError(
            "Ray is not installed", key="hydra/launcher", hint=install("hydra.launcher.ray", "ray")
        ) from error
    return ray


@contextmanager
def variables(values: Mapping[str, str]) -> Iterator[None]:
    """Have environment variables, where the user has not set them, in this block."""
    missing = {name: value for name, value in values.items() if name not in os.environ}
    os.environ.update(missing)
    try:
        yield
    finally:
        for name in missing:
            os.environ.pop(name, None)


_OF_LAUNCHERS: Final = (*WORLD_SIZES, "SLURM_NTASKS_PER_NODE", "SLURM_PROCID", "SLURM_LOCALID")
"""By these a job would take itself for one rank of several, as in an allocation in which a cluster runs."""
_VISIBLE: Final = "CUDA_VISIBLE_DEVICES"
_LOOK_EVERY: Final = 0.2


@final
class ClusterWorker:
    """Runs jobs one after another, each forked from a fork server of this process."""

    def __init__(self) -> None:
        os.environ[orphans.MARK] = uuid.uuid4().hex
        self._fork_server = ForkServer()
        self._guard = orphans.guard(os.environ[orphans.MARK])
        self._told: dict[int, str] = {}

    def ready(self) -> bool:
        """Tells that there is a place for this process."""
        return True

    def run(self, key: int, job_spec: str, environment: dict[str, str] | None = None) -> str:
        """Run a job to its end; never raises."""
        try:
            ready = JobSpec.from_json(job_spec)
            changes: dict[str, str | None] = dict.fromkeys(_OF_LAUNCHERS)
            if environment is not None:
                changes |= _instead(environment, ready)
            ready = replace(ready, environment=changes | ready.environment)
            return self._run(key, ready).to_json()
        except Exception as error:  # whatever it is, the launcher waits for an answer
            return Outcome("failed", "machine", reason_of(error)).to_json()
        finally:
            self._told.pop(key, None)

    def stop(self, key: int, *, now: bool) -> None:
        """Ask a job to save and end, or end it at once; may be called by another thread, and before `run`."""
        self._told[key] = "SIGKILL" if now else self._told.get(key, "SIGTERM")

    def close(self) -> None:
        """End what runs and the fork server."""
        self._fork_server.close()
        with suppress(OSError):
            self._guard.close()

    def _run(self, key: int, job_spec: JobSpec) -> Outcome:
        child = self._fork_server.start(job_spec)
        sent = ""
        while True:
            for exit_status in self._fork_server.wait((child,), _LOOK_EVERY).values():
                return outcome_after(job_spec, exit_status, signal_sent=sent)
            wanted = self._told.get(key, "")
            if wanted != sent:
                self._fork_server.stop(child, now=wanted == "SIGKILL")
                sent = wanted


def _instead(environment: Mapping[str, str], job_spec: JobSpec) -> dict[str, str | None]:
    """What turns the variables of this process into others."""
    kept = {orphans.MARK, MARK} | ({_VISIBLE} if job_spec.gpus else set())
    wanted = {name: value for name, value in environment.items() if name not in kept}
    return {**{name: None for name in os.environ if name not in wanted and name not in kept}, **wanted}
