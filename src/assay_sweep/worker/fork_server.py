"""The process that jobs are forked from: it has imported everything, and computes nothing.

It is told to fork by a message and a connection, which the new process reads its request from, and which
tells the driver how that process ended. `multiprocessing`'s own fork server imports the driver's main
script again in each job, makes itself the start method of a job's workers, and outlives a killed driver.
"""

from __future__ import annotations

import functools
import gc
import importlib
import os
import pkgutil
import signal
import socket
import sys
import time
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from typing import TYPE_CHECKING, Any, NoReturn, final

from assay.errors import AssayError, describe_error
from assay.process import COLLECT
from assay.record.run_record import Outcome
from assay.rooms import BUILT_IN, entries
from assay_cluster.children import (
    adopt_orphans,
    child_pids,
    count_oom_kills,
    end_with,
    kill_process,
)
from assay_sweep.job_spec import ExitStatus
from assay_sweep.worker.fork_client import FORK, FORK_TRIAL, KILL, STOP
from assay_sweep.worker.run_job import from_text

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from assay.rooms import Kind

_GROUPS = (
    "augment",
    "callbacks",
    "data",
    "loss",
    "metrics",
    "model",
    "optimizer",
    "scheduler",
    "logger",
)
_MODULES = (
    "assay.run.predictor",
    "assay.run.resume",
    "assay_sweep.worker.run_job",
    "pyarrow.parquet",
    "rich._emoji_codes",
    "sklearn.datasets",
    "sklearn.datasets.data",
    "sklearn.datasets.descr",
    "torchmetrics",
    "torchvision.models",
    "torchvision.transforms.v2",
)


_ASKED: tuple[Kind, ...] = ("after_test", "callbacks", "predictions")
"""What a job asks of rooms, beside shards; other packages may start threads, and are left to the jobs."""


def preload() -> None:
    """Import what jobs need, and compute what is the same for all of them."""
    for name in _MODULES:
        importlib.import_module(name)
    packages = [importlib.import_module(f"assay.{group}") for group in _GROUPS]
    modules = [
        found
        for one in packages
        for found in pkgutil.walk_packages(one.__path__, f"{one.__name__}.")
    ]
    of_rooms = [name.partition(":")[0] for kind in _ASKED for name in BUILT_IN[kind]]
    of_groups = [module.name for module in modules]
    for name in ("fsspec.implementations.chained", *of_rooms, *of_groups):
        # of a room or an extra that is not installed, or of a version that lacks it
        with suppress(ImportError):
            importlib.import_module(name)
    from assay.record import provenance

    entries("shards")  # reads the entry points of all packages
    provenance.packages()
    provenance.machine([], 1)


@functools.cache
def preload_study() -> None:
    """Import what a job asks a study with."""
    with suppress(ImportError):
        importlib.import_module("optuna.storages.journal")


_TICK = 0.02
"""Seconds between two looks for processes that have ended, where the system does not tell of it."""
_IDLE = 1.0
"""Seconds between two looks for orphans that have come to this process and ended."""
_GRACE = 10.0
"""Seconds in which jobs may save once their driver is gone."""


@final
@dataclass
class _Child:
    """A process forked from here."""

    key: int
    connection: Connection
    end: int = -1
    """Descriptor that can be read once it has ended; -1 where the system has none."""
    kills: int = field(default_factory=count_oom_kills)
    start: float = field(default_factory=time.monotonic)

    def report(self, exit_code: int, outcome: str = "") -> None:
        """Tell the driver how it ended."""
        seconds = time.monotonic() - self.start
        if self.end >= 0:
            os.close(self.end)
        with self.connection, suppress(OSError):
            self.connection.send(
                ExitStatus(exit_code, outcome, count_oom_kills() > self.kills, seconds)
            )


@final
class Server:
    """Forks a process for each request, and tells how it ended."""

    def __init__(self, driver: Connection, settings: Mapping[str, str]) -> None:
        self._driver = driver
        self._settings = settings
        self._children: dict[int, _Child] = {}

    def run(self) -> None:
        """Serve until the driver is gone; then let the children save, and end them."""
        self._driver.send("ready")
        while self._serve():
            self._reap()
        for pid in self._children:
            os.kill(pid, signal.SIGTERM)
        deadline = time.monotonic() + _GRACE
        while self._children and time.monotonic() < deadline:
            time.sleep(_TICK)
            self._reap()
        while remaining := child_pids():
            for pid in remaining:
                kill_process(pid)
            time.sleep(_TICK)
            self._reap()

    def _serve(self) -> bool:
        """Serve one request of the driver; return False if it is gone."""
        try:
            ends = [child.end for child in self._children.values()]
            ready = wait(
                [self._driver, *(end for end in ends if end >= 0)], _TICK if -1 in ends else _IDLE
            )
            if self._driver not in ready:
                return True
            kind, key = self._driver.recv()
            if kind in (FORK, FORK_TRIAL):
                with socket.fromfd(
                    self._driver.fileno(), socket.AF_UNIX, socket.SOCK_STREAM
                ) as control:
                    _, (descriptor,), _, _ = socket.recv_fds(control, 1, 1)
                os.set_inheritable(descriptor, False)
                if kind == FORK_TRIAL:
                    preload_study()
                self._fork(_Child(key, Connection(descriptor)))
        except (EOFError, OSError, ValueError):  # no descriptor came
            return False
        for pid in [pid for pid, child in self._children.items() if child.key == key]:
            if kind in (STOP, KILL):
                os.kill(pid, signal.SIGTERM if kind == STOP else signal.SIGKILL)
        return True

    def _fork(self, child: _Child) -> None:
        fork_server = os.getpid()
        try:
            pid = os.fork()
        except OSError as error:
            child.report(
                1, Outcome("failed", "machine", f"it could not be forked: {error}").to_json()
            )
            return
        if pid == 0:
            run_and_exit(lambda: self._become_child(fork_server, child))
        if hasattr(os, "pidfd_open"):
            with suppress(OSError):  # a kernel before 5.3, or a sandbox
                child.end = os.pidfd_open(pid)
        self._children[pid] = child

    def _become_child(self, fork_server: int, child: _Child) -> None:
        """Keep nothing of the fork server but its modules, and work."""
        os.setsid()
        signal.signal(signal.SIGINT, signal.default_int_handler)
        end_with(fork_server)
        for inherited in (self._driver, *(other.connection for other in self._children.values())):
            inherited.close()
        for other in self._children.values():
            if other.end >= 0:
                os.close(other.end)
        os.environ.clear()
        os.environ.update(self._settings)
        sys.argv = ["assay"]
        gc.enable()
        gc.set_threshold(*COLLECT)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM])
        handle_request(child.connection)

    def _reap(self) -> None:
        with suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                if (child := self._children.pop(ended[0], None)) is not None:
                    with suppress(ProcessLookupError, PermissionError):
                        os.killpg(ended[0], signal.SIGKILL)  # what it has left behind
                    self._end_left_over()
                    child.report(os.waitstatus_to_exitcode(ended[1]))

    def _end_left_over(self) -> None:
        """End what came to this process because its parent is gone, unless it is in the session of a job."""
        for pid in child_pids():
            with suppress(ProcessLookupError):  # it has just ended
                if not {pid, os.getsid(pid)} & {*self._children}:
                    kill_process(pid)


def handle_request(connection: Connection) -> None:
    """Handle the driver's request: run a job and send its outcome, or check jobs."""
    from assay_sweep.worker.run_job import run_job_spec

    try:
        environment, job_spec = connection.recv()
    except EOFError:  # the driver has just gone
        return
    os.environ.update(environment)
    if job_spec is None:
        check_jobs(connection)
        return
    process = os.getpid()
    outcome = run_job_spec(job_spec)
    if os.getpid() == process:  # not for a process that the job has forked and not kept to itself
        with suppress(OSError):
            connection.send(outcome.to_json())


_OF_USE = ("spec", "data_read", "scores", "directions", "devices", "warnings")
"""Fields of a report that a sweep needs."""


def check_jobs(driver: Connection) -> None:
    """Answer questions about jobs until the driver closes its end."""
    import torch

    from assay_prove.prove import Prover

    prover = Prover()
    answer: dict[str, Any] | AssayError
    while True:
        try:
            question = driver.recv()
        except EOFError:
            return
        try:
            if question is None:
                answer = {"gpus": torch.cuda.device_count()}
            else:
                config, overrides, folder = question
                os.chdir(folder)
                report = prover.prove(from_text(config), overrides).report
                answer = {name: getattr(report, name) for name in _OF_USE}
        except AssayError as error:
            answer = error
        except Exception as error:
            answer = AssayError(describe_error(error))
        driver.send(answer)


def run_and_exit(body: Callable[[], None]) -> NoReturn:
    """Call `body` and exit as a program does, without returning to the frames of the fork server."""
    import atexit
    import threading
    import weakref

    for inherited in list(weakref.finalize._registry):  # type: ignore[attr-defined]  # no public way to list them
        inherited.atexit = False
    try:
        body()
        threading._shutdown()  # type: ignore[attr-defined]  # waits for what is not a daemon, as a program does
        atexit._run_exitfuncs()
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
    finally:
        os._exit(0)


def main() -> None:
    """Import everything, and serve."""
    driver = Connection(int(sys.argv[1]))
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for stream in (sys.stdout, sys.stderr):
        # What a job printed before it died is kept.
        stream.reconfigure(line_buffering=True, encoding="utf-8", errors="backslashreplace")  # type: ignore[union-attr]  # a text file
    adopt_orphans()
    # which Slurm sends to all processes of a job
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
    gc.disable()
    before = dict(os.environ)
    preload()
    gc.collect()
    gc.freeze()
    Server(
        driver, {name: value for name, value in os.environ.items() if before.get(name) != value}
    ).run()


if __name__ == "__main__":
    main()
