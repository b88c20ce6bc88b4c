"""The process that jobs are forked from: it has imported everything, and computes nothing.

Messages are lines of JSON over one socket. It is told `run`, `check` (with a socket of the checker's own, so
that nothing of a check passes through here) and `stop`, and tells `ready`, `started` and `ended`.
"""

from __future__ import annotations

import functools
import gc
import importlib
import json
import os
import pkgutil
import re
import selectors
import signal
import socket
import sys
import tempfile
import time
import warnings
from contextlib import suppress
from dataclasses import dataclass, field
from typing import IO, TYPE_CHECKING, Any, Final, NoReturn, final

from assay.errors import ConfigError
from assay.files.control_groups import kills
from assay.paths import CONF_DIR
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
_INTERPOLATION: Final = re.compile(r"[^\s:]*\$\{[^}]*\}[^\s#]*")
_TARGET: Final = re.compile(r"^( *)_target_: (\S+)$", re.MULTILINE)


def preload() -> None:
    """Import what jobs are made of, and look up what is the same for all of them."""
    for name in _MODULES:
        importlib.import_module(name)
    for group in _GROUPS:
        package = importlib.import_module(f"assay.{group}")
        for module in pkgutil.iter_modules(package.__path__, f"assay.{group}."):
            with suppress(ImportError):  # of an extra that is not installed
                importlib.import_module(module.name)
    _look_up_options()
    _look_up_plugins()
    from assay.record import provenance

    provenance.packages()
    provenance.machine([], 1)


@functools.cache
def preload_study() -> None:
    """Import what a job asks a study with; nothing is opened, since no connection survives a fork."""
    with suppress(ImportError):
        for name in ("optuna", "optuna.storages", "sqlalchemy.dialects.sqlite", "alembic"):
            importlib.import_module(name)


def _look_up_options() -> None:
    """Find the classes that assay's own options name, and parse their interpolations once: parsers learn."""
    from omegaconf import grammar_parser

    from assay.targets.resolve import resolve

    for path in sorted(CONF_DIR.glob("*/*.yaml")):
        text = path.read_text(encoding="utf-8")
        for written in _INTERPOLATION.findall(text):
            with suppress(Exception):  # only part of a value, such as one with spaces
                grammar_parser.parse(written)
        group = path.parent.name
        for indent, target in _TARGET.findall(text):
            key = f"{group}.x" if group in ("callbacks", "logger", "metrics") else group
            with suppress(ConfigError, ImportError):
                resolve(f"{key}.x" if indent else key, target)


def _look_up_plugins() -> None:
    """Have libraries find the extensions that they look for when they are first used."""
    from sklearn.model_selection import train_test_split  # type: ignore[import-untyped]  # it has no stubs

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        train_test_split([0, 1, 2, 3], random_state=0)


JOB: Final = "ASSAY_JOB"
"""Variable by which programs that a job has started are known as its own."""
_OURS: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD)
_GRACE: Final = 10.0
"""Seconds in which jobs may save once their driver is gone."""
_LARGEST: Final = 16 << 20
"""Bytes of an outcome."""
_COLLECT: Final = (10_000, 20, 20)
"""Thresholds of the garbage collector: a job begins with a hundred thousand objects that are not garbage."""


@final
@dataclass
class _Child:
    """A process forked from here."""

    key: int
    result: IO[bytes] = field(default_factory=lambda: _file())  # noqa: PLW0108 - is defined below
    kills: int = field(default_factory=kills)
    start: float = field(default_factory=time.monotonic)


@final
class Server:
    """Forks a child for each request, and tells how it ended."""

    def __init__(self, driver: socket.socket, settings: Mapping[str, str]) -> None:
        self._driver, self._settings = driver, settings
        self._children: dict[int, _Child] = {}
        self._pids: dict[int, int] = {}
        self._inbox, self._outbox = bytearray(), bytearray()
        self._received: list[int] = []
        self._selector = selectors.DefaultSelector()
        self._woken, self._wake = os.pipe()
        self._ending = False

    def run(self) -> None:
        """Serve until the driver is gone; then let the children save, and end them."""
        for end in (self._woken, self._wake):
            os.set_blocking(end, False)
        signal.set_wakeup_fd(self._wake, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGTERM, lambda *_: setattr(self, "_ending", True))
        self._driver.setblocking(False)
        self._selector.register(self._woken, selectors.EVENT_READ)
        self._selector.register(self._driver, selectors.EVENT_READ)
        self._tell({"is": "ready"})
        while not self._ending:
            self._step()
        self._end()

    def _step(self, seconds: float | None = None) -> None:
        """Do what there is to do, or wait for it."""
        for key, events in self._selector.select(seconds):
            if key.fileobj == self._woken:
                with suppress(BlockingIOError):
                    os.read(self._woken, 4096)
                continue
            if events & selectors.EVENT_WRITE:
                self._send()
            if events & selectors.EVENT_READ:  # also what says that the driver is gone
                self._receive()
        self._reap()

    # -- messages ------------------------------------------------------------------------------------------

    def _receive(self) -> None:
        try:
            content, descriptors, _, _ = socket.recv_fds(self._driver, 1 << 20, 16)
        except BlockingIOError:
            return
        except ConnectionError:
            content, descriptors = b"", []
        self._received += descriptors
        if not content:
            self._ending = True
            self._selector.unregister(self._driver)
            return
        self._inbox += content
        *lines, rest = self._inbox.split(b"\n")
        self._inbox = bytearray(rest)
        for line in lines:
            self._do(json.loads(line))

    def _do(self, message: dict[str, Any]) -> None:
        if message["do"] == "stop":
            self._stop(message["key"], now=message["now"])
        elif message["do"] == "check":
            connection = self._received.pop(0)
            checker = _Child(message["key"])
            self._fork(checker, message["environment"], lambda _: check(connection))
            os.close(connection)
        else:
            environment = message["environment"] | {JOB: f"{os.getpid()}-{message['key']}"}
            job_spec = JobSpec.from_json(message["job_spec"])
            if job_spec.trial is not None:
                preload_study()
            child = _Child(message["key"])
            self._fork(child, environment, lambda result: work(job_spec, result))

    def _tell(self, message: dict[str, Any]) -> None:
        self._outbox += json.dumps(message).encode() + b"\n"
        self._send()

    def _send(self) -> None:
        """Send what the socket takes now; a driver that does not read holds nobody up."""
        with suppress(BlockingIOError, ConnectionError):
            del self._outbox[: self._driver.send(self._outbox)]
        if not self._ending:
            events = selectors.EVENT_READ | (selectors.EVENT_WRITE if self._outbox else 0)
            self._selector.modify(self._driver, events)

    # -- children ------------------------------------------------------------------------------------------

    def _fork(self, child: _Child, environment: Mapping[str, str], body: Callable[[int], None]) -> None:
        """Have a process of its own do something and end."""
        fork_server = os.getpid()
        # What is sent to the child before it has its own handlers must not get lost in ours.
        signal.pthread_sigmask(signal.SIG_BLOCK, _OURS)
        try:
            pid = os.fork()
            if pid == 0:
                self._become_child(fork_server, environment)
                live(lambda: body(child.result.fileno()))
        except OSError as error:
            child.result.close()
            outcome = Outcome("failed", "machine", f"it could not be forked: {error}")
            self._tell({"is": "ended", "key": child.key, "exit_code": 1, "outcome": outcome.to_json()})
            return
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _OURS)
        self._children[pid] = child
        self._pids[child.key] = pid
        self._tell({"is": "started", "key": child.key, "pid": pid})

    def _become_child(self, fork_server: int, environment: Mapping[str, str]) -> None:
        """Keep nothing of the fork server but its modules."""
        try:
            os.setsid()
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGINT, signal.default_int_handler)
            for number in (signal.SIGTERM, signal.SIGCHLD):
                signal.signal(number, signal.SIG_DFL)
            orphans.end_with(fork_server)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _OURS)
            self._selector.close()
            self._driver.close()
            for end in (self._woken, self._wake):
                os.close(end)
            for other in self._children.values():
                other.result.close()
            os.environ.clear()
            os.environ.update({**self._settings, **environment})
            sys.argv = ["assay"]
            gc.enable()
            gc.set_threshold(*_COLLECT)
        except BaseException:
            os._exit(70)

    def _stop(self, key: int, *, now: bool) -> None:
        pid = self._pids.get(key)
        if pid is None:
            return
        if now:
            started = orphans.descendants(pid)
            for process in (pid, *started):
                orphans.kill(process)
        else:
            os.kill(pid, signal.SIGTERM)

    def _reap(self) -> None:
        ended: list[tuple[int, _Child, int]] = []
        with suppress(ChildProcessError):
            while (found := os.waitpid(-1, os.WNOHANG))[0]:
                child = self._children.pop(found[0], None)
                if child is not None:
                    ended.append((found[0], child, os.waitstatus_to_exitcode(found[1])))
        for pid, child, _ in ended:
            del self._pids[child.key]
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(pid, signal.SIGKILL)  # what it has left behind
        self._end_left_over()
        for _, child, exit_code in ended:
            child.result.seek(0)
            outcome = child.result.read(_LARGEST).decode("utf-8", "replace")
            child.result.close()
            self._tell(
                {
                    "is": "ended",
                    "key": child.key,
                    "exit_code": exit_code,
                    "outcome": outcome,
                    "memory_ran_out": kills() > child.kills,
                    "seconds": time.monotonic() - child.start,
                }
            )

    def _end_left_over(self) -> None:
        """End what came to this process because the job that it belongs to is gone."""
        live = {f"{os.getpid()}-{key}" for key in self._pids}
        for pid in orphans.children():
            if pid in self._children:
                continue
            mark = orphans.mark_of(pid, JOB)
            if mark:
                belongs = mark in live
            else:  # forked, never a program of its own: known by its session, unless that is its own
                try:
                    belongs = (session := os.getsid(pid)) in self._children or session == pid
                except ProcessLookupError:  # it has just ended
                    continue
            if not belongs:
                orphans.kill(pid)

    def _end(self) -> None:
        for pid in self._children:
            os.kill(pid, signal.SIGTERM)
        deadline = time.monotonic() + _GRACE
        while self._children and time.monotonic() < deadline:
            self._step(deadline - time.monotonic())
        for pid in list(self._children):
            for process in (pid, *orphans.descendants(pid)):
                orphans.kill(process)
        for pid in orphans.children():
            orphans.kill(pid)


def work(job_spec: JobSpec, result: int) -> None:
    """Run a job, and leave its outcome."""
    from assay.sweep.worker.run_job import run_job_spec

    process = os.getpid()
    outcome = run_job_spec(job_spec)
    if os.getpid() == process:  # not for a process that the job has forked and not kept to itself
        with suppress(OSError):
            os.write(result, outcome.to_json().encode())


def check(connection: int) -> None:
    """Check jobs; see `assay.sweep.worker.check_process.serve`."""
    from assay.sweep.worker.check_process import serve

    serve(connection)


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


def _file() -> IO[bytes]:
    """A file without a name; in memory where the system can, as disks get full."""
    if hasattr(os, "memfd_create"):
        return os.fdopen(os.memfd_create("assay"), "w+b")
    return tempfile.TemporaryFile()


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
