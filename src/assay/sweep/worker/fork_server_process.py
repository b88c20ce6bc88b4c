"""The process that jobs are forked from: it has imported everything, and computes nothing.

`assay.sweep.worker.fork_server` starts it as a fresh program with one thread, which is as safe to fork as
Python's forkserver. It computes nothing and asks for no GPU: neither the threads of OpenMP nor a CUDA
context survive a fork.

While nothing is asked of it, it keeps one spare child, which has done what only a process that computes may
do, and waits for the next job: that one starts without the cost of a fork.

Messages are lines of JSON over one socket. It is told `run`, `check` (with a socket of the checker's own, so
that nothing of a check passes through here) and `stop`, and tells `ready`, `started` and `ended`.
"""

from __future__ import annotations

import gc
import json
import os
import selectors
import signal
import socket
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass, field
from typing import IO, TYPE_CHECKING, Any, Final, final

from assay.sweep.job_spec import JobSpec
from assay.sweep.outcome import Outcome
from assay.sweep.worker import forked_process, orphans
from assay.sweep.worker.oom_killer import kills
from assay.sweep.worker.preload import practice, preload, preload_study, warm_up

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

JOB: Final = "ASSAY_JOB"
"""Variable by which programs that a job has started are known as its own."""
_OURS: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD)
_GRACE: Final = 10.0
"""Seconds in which jobs may save once their driver is gone."""
_LARGEST: Final = 16 << 20
"""Bytes of an outcome."""
_COLLECT: Final = (10_000, 20, 20)
"""Thresholds of the garbage collector: a job begins with a hundred thousand objects that are no garbage."""
_IDLE: Final = 0.25
"""Seconds after which a spare child is made: not while jobs are being started, whose cores it would take."""


@final
@dataclass
class _Child:
    """A process forked from here.

    Attributes:
        key: By which the driver knows it.
        computes: It is a job; what checks jobs mostly waits for one.
        result: Takes its outcome. A file and no pipe: whatever becomes of the child, nobody waits for it.
        kills: Of the kernel's OOM killer before it.
        start: Of a monotonic clock.
    """

    key: int
    computes: bool = True
    result: IO[bytes] = field(default_factory=lambda: _file())  # noqa: PLW0108 - is defined below
    kills: int = field(default_factory=kills)
    start: float = field(default_factory=time.monotonic)


@final
@dataclass
class _Spare:
    """A process that waits to become a job.

    Attributes:
        pid: Its process id.
        result: As in `_Child`.
        request: Takes the job. A file, because it is written at once, whatever the child does.
        go: A byte here says that the request is written; closing it ends the child.
    """

    pid: int
    result: IO[bytes]
    request: IO[bytes]
    go: int

    def close(self) -> None:
        """Let go of all but its result."""
        self.request.close()
        os.close(self.go)


@final
class Server:
    """Forks a child for each request, and tells how it ended.

    Args:
        driver: The other end is the driver's; when it is closed, everything here ends.
        settings: Environment variables that the imported libraries have set, as they would in each job.
    """

    def __init__(self, driver: socket.socket, settings: Mapping[str, str]) -> None:
        self._driver, self._settings = driver, settings
        self._children: dict[int, _Child] = {}
        self._pids: dict[int, int] = {}
        self._inbox, self._outbox = bytearray(), bytearray()
        self._received: list[int] = []
        self._selector = selectors.DefaultSelector()
        self._woken, self._wake = os.pipe()
        self._spare: _Spare | None = None
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
            if not self._step(_IDLE if self._spare is None else None) and self._spare is None:
                self._make_spare()
        self._end()

    def _step(self, seconds: float | None) -> bool:
        """Do what there is to do, or wait for it; whether there was anything."""
        found = self._selector.select(seconds)
        for key, events in found:
            if key.fileobj == self._woken:
                with suppress(BlockingIOError):
                    os.read(self._woken, 4096)
                continue
            if events & selectors.EVENT_WRITE:
                self._send()
            if events & selectors.EVENT_READ:  # also what says that the driver is gone
                self._receive()
        self._reap()
        return bool(found)

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
            checker = _Child(message["key"], computes=False)
            self._fork(checker, message["environment"], lambda _: forked_process.check(connection))
            os.close(connection)
        else:
            environment = message["environment"] | {JOB: f"{os.getpid()}-{message['key']}"}
            job_spec = JobSpec.from_json(message["job_spec"])
            if job_spec.trial is not None:
                preload_study()
            if not self._use_spare(message["key"], environment, message["job_spec"]):
                child = _Child(message["key"])
                self._fork(child, environment, lambda result: forked_process.work(job_spec, result))

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
        def run() -> None:
            self._take_variables(environment)
            body(child.result.fileno())

        try:
            pid = self._child(run)
        except OSError as error:
            child.result.close()
            outcome = Outcome("failed", "exception", f"it could not be forked: {error}", transient=True)
            self._tell({"is": "ended", "key": child.key, "exit_code": 1, "said": outcome.to_json()})
            return
        self._started(pid, child)

    def _started(self, pid: int, child: _Child) -> None:
        self._children[pid] = child
        self._pids[child.key] = pid
        self._tell({"is": "started", "key": child.key, "pid": pid})

    def _make_spare(self) -> None:
        busy = sum(child.computes for child in self._children.values())
        job = practice() if busy < (os.cpu_count() or 1) else ""
        try:
            result, request = _file(), _file()
        except OSError:  # no room; jobs go on without one
            return
        ready, go = os.pipe()

        def wait_and_run() -> None:
            os.close(go)
            warm_up(job)
            if os.read(ready, 1):
                asked = json.loads(os.pread(request.fileno(), os.fstat(request.fileno()).st_size, 0))
                for end in (ready, request.fileno()):
                    os.close(end)
                self._take_variables(asked["environment"])
                forked_process.work(JobSpec.from_json(asked["job_spec"]), result.fileno())

        try:
            self._spare = _Spare(self._child(wait_and_run), result, request, go)
        except OSError:  # no room for another process; a job that is asked for says so
            for file in (result, request):
                file.close()
            os.close(go)
        finally:
            os.close(ready)

    def _use_spare(self, key: int, environment: Mapping[str, str], job_spec: str) -> bool:
        """Make the spare child a job, if there is one."""
        spare, self._spare = self._spare, None
        if spare is None:
            return False
        try:
            spare.request.write(json.dumps({"environment": environment, "job_spec": job_spec}).encode())
            spare.request.flush()
            os.write(spare.go, b"x")
        except OSError:  # it is gone
            return False
        else:
            self._started(spare.pid, _Child(key, result=spare.result))
            return True
        finally:
            spare.close()

    def _child(self, body: Callable[[], None]) -> int:
        """Fork a child that does something and ends; its process id.

        Raises:
            OSError: There is no room for another process.
        """
        fork_server = os.getpid()
        # What is sent to the child before it has its own handlers must not get lost in ours.
        signal.pthread_sigmask(signal.SIG_BLOCK, _OURS)
        try:
            pid = os.fork()
            if pid == 0:
                self._become_child(fork_server)
                forked_process.live(body)
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _OURS)
        return pid

    def _take_variables(self, environment: Mapping[str, str]) -> None:
        os.environ.clear()
        os.environ.update({**self._settings, **environment})

    def _become_child(self, fork_server: int) -> None:
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
            for one in (pid, *started):
                orphans.kill(one)
        else:
            os.kill(pid, signal.SIGTERM)

    def _reap(self) -> None:
        ended: list[tuple[int, _Child, int]] = []
        with suppress(ChildProcessError):
            while (found := os.waitpid(-1, os.WNOHANG))[0]:
                if self._spare is not None and found[0] == self._spare.pid:
                    self._spare.result.close()
                    self._spare.close()
                    self._spare = None
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
            said = child.result.read(_LARGEST).decode("utf-8", "replace")
            child.result.close()
            self._tell(
                {
                    "is": "ended",
                    "key": child.key,
                    "exit_code": exit_code,
                    "said": said,
                    "memory_ran_out": kills() > child.kills,
                    "seconds": time.monotonic() - child.start,
                }
            )

    def _end_left_over(self) -> None:
        """End what came to this process because the job that it belongs to is gone."""
        live = {f"{os.getpid()}-{key}" for key in self._pids}
        for pid in orphans.children():
            if pid in self._children or (self._spare is not None and pid == self._spare.pid):
                continue
            mark = orphans.mark_of(pid, JOB)
            if mark:
                belongs = mark in live
            else:  # forked, never a program of its own: known by its session, unless that is its own
                with suppress(ProcessLookupError):
                    belongs = (session := os.getsid(pid)) in self._children or session == pid
            if not belongs:
                orphans.kill(pid)

    def _end(self) -> None:
        if self._spare is not None:
            self._spare.close()
            os.kill(self._spare.pid, signal.SIGTERM)
        for pid in self._children:
            os.kill(pid, signal.SIGTERM)
        deadline = time.monotonic() + _GRACE
        while self._children and time.monotonic() < deadline:
            self._step(deadline - time.monotonic())
        for pid in list(self._children):
            for one in (pid, *orphans.descendants(pid)):
                orphans.kill(one)
        for pid in orphans.children():
            orphans.kill(pid)


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
