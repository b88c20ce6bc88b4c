"""The process that jobs are forked from: it has imported everything, and computes nothing.

It is told to fork by a record with a socket's descriptor, which the new process reads its request from, and
which tells the driver how that process ended. `multiprocessing`'s own fork server imports the driver's main
script again in each job, makes itself the start method of a job's workers, and outlives a killed driver.
"""

from __future__ import annotations

import functools
import gc
import importlib
import json
import os
import pkgutil
import select
import signal
import socket
import struct
import sys
import time
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NoReturn, final

from assay.files.control_groups import kills
from assay.process import orphans
from assay.record.outcome import Outcome
from assay.sweep.job_spec import JobSpec

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_GROUPS: Final = (
    *("augment", "callbacks", "data", "loss", "metrics", "model", "optimizer", "scheduler"),
    "logger",
)
_MODULES: Final = (
    "assay.run.train",
    "assay.run.resume",
    "assay.sweep.worker.run_job",
    "fsspec.implementations.chained",
    "git",
    "rich._emoji_codes",
    "sklearn.datasets",
    "sklearn.datasets.data",
    "sklearn.datasets.descr",
    "torchmetrics",
    "torchvision.models",
    "torchvision.transforms.v2",
)


def preload() -> None:
    """Import what jobs are made of, and look up what is the same for all of them."""
    for name in _MODULES:
        importlib.import_module(name)
    for group in _GROUPS:
        package = importlib.import_module(f"assay.{group}")
        for module in pkgutil.iter_modules(package.__path__, f"assay.{group}."):
            with suppress(ImportError):  # of an extra that is not installed
                importlib.import_module(module.name)
    from assay.record import provenance

    provenance.packages()
    provenance.machine([], 1)


@functools.cache
def preload_study() -> None:
    """Import what a job asks a study with; nothing is opened, since no connection survives a fork."""
    with suppress(ImportError):
        for name in ("optuna", "optuna.storages", "sqlalchemy.dialects.sqlite", "alembic"):
            importlib.import_module(name)


JOB: Final = "ASSAY_JOB"
"""Variable by which programs that a job has started are known as its own."""
RECORD: Final = struct.Struct("!cQ")
"""What a driver sends: a letter and a key, with a descriptor where a process is to be forked."""
FORK, FORK_TRIAL, STOP, KILL = b"f", b"t", b"s", b"k"
STATUS: Final = b'{"exit_code": '
"""What the line begins with that tells how a process ended."""
_GRACE: Final = 10.0
"""Seconds in which jobs may save once their driver is gone."""
_COLLECT: Final = (10_000, 20, 20)
"""Thresholds of the garbage collector: a job begins with a hundred thousand objects that are not garbage."""


@final
@dataclass
class _Child:
    """A process forked from here."""

    key: int
    connection: socket.socket
    kills: int = field(default_factory=kills)
    start: float = field(default_factory=time.monotonic)

    def tell(self, exit_code: int, outcome: str = "") -> None:
        """Say how it ended; a driver that does not read holds nobody up."""
        status = {
            "exit_code": exit_code,
            "outcome": outcome,
            "memory_ran_out": kills() > self.kills,
            "seconds": time.monotonic() - self.start,
        }
        with self.connection, suppress(OSError):
            self.connection.send(b"\n%s\n" % json.dumps(status).encode(), socket.MSG_DONTWAIT)


@final
class Server:
    """Forks a process for each request, and tells how it ended."""

    def __init__(self, driver: socket.socket, settings: Mapping[str, str]) -> None:
        self._driver, self._settings = driver, settings
        self._children: dict[int, _Child] = {}
        self._woken, self._wake = socket.socketpair()

    def run(self) -> None:
        """Serve until the driver is gone; then let the children save, and end them."""
        for end in (self._woken, self._wake):
            end.setblocking(False)
        signal.set_wakeup_fd(self._wake.fileno(), warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        self._driver.send(b"r")
        is_served = True
        while is_served:
            ready, _, _ = select.select([self._driver, self._woken], [], [])
            if self._woken in ready:
                self._woken.recv(4096)
            self._reap()
            if self._driver in ready:
                is_served = self._serve()
        for pid in self._children:
            os.kill(pid, signal.SIGTERM)
        deadline = time.monotonic() + _GRACE
        while self._children and time.monotonic() < deadline:
            time.sleep(0.02)
            self._reap()
        for pid in orphans.children():
            _kill(pid)

    def _serve(self) -> bool:
        """Do what the driver asks for; False where it is gone."""
        record, descriptors = b"", list[int]()
        with suppress(ConnectionError):
            record, descriptors, _, _ = socket.recv_fds(self._driver, RECORD.size, 1)
        if not record:
            return False
        kind, key = RECORD.unpack(record)
        if descriptors:
            os.set_inheritable(descriptors[0], False)
            if kind == FORK_TRIAL:
                preload_study()
            self._fork(_Child(key, socket.socket(fileno=descriptors[0])))
        for pid in [pid for pid, child in self._children.items() if child.key == key]:
            if kind == STOP:
                os.kill(pid, signal.SIGTERM)
            elif kind == KILL:
                _kill(pid)
        return True

    def _fork(self, child: _Child) -> None:
        fork_server = os.getpid()
        # What is sent to the child before it has its own handlers must not get lost in ours.
        signals = (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD)
        signal.pthread_sigmask(signal.SIG_BLOCK, signals)
        try:
            pid = os.fork()
            if pid == 0:
                try:
                    self._become_child(fork_server, child)
                    signal.pthread_sigmask(signal.SIG_UNBLOCK, signals)
                except BaseException:
                    os._exit(70)
                live(lambda: work(child.connection))
        except OSError as error:
            child.tell(1, Outcome("failed", "machine", f"it could not be forked: {error}").to_json())
        else:
            self._children[pid] = child
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, signals)

    def _become_child(self, fork_server: int, child: _Child) -> None:
        """Keep nothing of the fork server but its modules."""
        os.setsid()
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        orphans.end_with(fork_server)
        for inherited in (self._driver, self._woken, self._wake):
            inherited.close()
        for other in self._children.values():
            other.connection.close()
        os.environ.clear()
        os.environ.update(self._settings)
        os.environ[JOB] = _mark(fork_server, child.key)
        sys.argv = ["assay"]
        gc.enable()
        gc.set_threshold(*_COLLECT)

    def _reap(self) -> None:
        with suppress(ChildProcessError):
            while (found := os.waitpid(-1, os.WNOHANG))[0]:
                child = self._children.pop(found[0], None)
                if child is not None:
                    with suppress(ProcessLookupError, PermissionError):
                        os.killpg(found[0], signal.SIGKILL)  # what it has left behind
                    self._end_left_over()
                    child.tell(os.waitstatus_to_exitcode(found[1]))

    def _end_left_over(self) -> None:
        """End what came to this process because the job that it belongs to is gone."""
        live = {_mark(os.getpid(), child.key) for child in self._children.values()}
        for pid in orphans.children():
            mark = orphans.mark_of(pid, JOB)
            with suppress(ProcessLookupError):  # it has just ended
                # One that was forked, and is no program of its own, is known by its session alone.
                if pid not in self._children and (
                    mark not in live if mark else os.getsid(pid) not in (*self._children, pid)
                ):
                    orphans.kill(pid)


def _mark(fork_server: int, key: int) -> str:
    return f"{fork_server}-{key}"


def _kill(pid: int) -> None:
    for process in (pid, *orphans.descendants(pid)):
        orphans.kill(process)


def work(connection: socket.socket) -> None:
    """Do what the driver asks this process for: run a job and leave its outcome, or check jobs."""
    from assay.sweep.worker.check_process import serve
    from assay.sweep.worker.run_job import run_job_spec

    stream = connection.makefile("rwb")
    request: dict[str, Any] = json.loads(stream.readline() or "{}")
    if not request:  # the driver has just gone
        return
    os.environ.update({**request["environment"], JOB: os.environ[JOB]})
    if not request["job_spec"]:
        serve(stream)
        return
    process = os.getpid()
    outcome = run_job_spec(JobSpec.from_json(request["job_spec"]))
    if os.getpid() == process:  # not for a process that the job has forked and not kept to itself
        with suppress(OSError):
            os.write(connection.fileno(), outcome.to_json().encode())


def live(body: Callable[[], None]) -> NoReturn:
    """Do something and end as a program does, without going back to the frames of the fork server."""
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
    driver = socket.socket(fileno=int(sys.argv[1]))
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for stream in (sys.stdout, sys.stderr):
        # A job that dies has said what it has said.
        stream.reconfigure(line_buffering=True, encoding="utf-8", errors="backslashreplace")  # type: ignore[union-attr]  # a text file
    orphans.adopt()
    gc.disable()
    before = dict(os.environ)
    preload()
    gc.collect()
    gc.freeze()
    Server(driver, {name: value for name, value in os.environ.items() if before.get(name) != value}).run()


if __name__ == "__main__":
    main()
