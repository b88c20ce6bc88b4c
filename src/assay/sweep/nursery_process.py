"""The process that jobs are forked from: it has imported everything, and computes nothing.

Started by `assay.sweep.nursery` as a fresh program, so that it has one thread and nothing of its driver;
forks are safe for the same reason that they are for Python's forkserver. It never computes and never asks for
a GPU: the threads of OpenMP and a CUDA context do not survive a fork.

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
from typing import IO, TYPE_CHECKING, Any, Final, NoReturn, final

from assay.sweep import orphans
from assay.sweep.oom_killer import kills
from assay.sweep.outcome import Outcome
from assay.sweep.preload import preload
from assay.sweep.task import Task

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

JOB: Final = "ASSAY_JOB"
"""Variable by which programs that a job has started are known as its own."""
_OURS: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD)
_GRACE: Final = 10.0
"""Seconds in which jobs may save once their driver is gone."""
_LARGEST: Final = 16 << 20
"""Bytes of an outcome."""


@final
@dataclass
class _Child:
    """A process forked from here.

    Attributes:
        key: By which the driver knows it.
        result: Takes its outcome. A file and no pipe: whatever becomes of the child, nobody waits for it.
        kills: Of the kernel's OOM killer before it.
        start: Of a monotonic clock.
    """

    key: int
    result: IO[bytes]
    kills: int = field(default_factory=kills)
    start: float = field(default_factory=time.monotonic)


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
            self._step(None)
        self._end()

    def _step(self, seconds: float | None) -> None:
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
            self._fork(message["key"], message["environment"], lambda _: _check(connection))
            os.close(connection)
        else:
            task = Task.from_json(message["task"])
            environment = message["environment"] | {JOB: f"{os.getpid()}-{message['key']}"}
            self._fork(message["key"], environment, lambda result: _work(task, result))

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

    def _fork(self, key: int, environment: Mapping[str, str], body: Callable[[int], None]) -> None:
        nursery = os.getpid()
        result = tempfile.TemporaryFile()  # noqa: SIM115 - as long as the child lives
        child = _Child(key, result)
        # What is sent to the child before it has its own handlers must not get lost in ours.
        signal.pthread_sigmask(signal.SIG_BLOCK, _OURS)
        try:
            pid = os.fork()
            if pid == 0:
                self._become_child(nursery, environment)
                body(result.fileno())
                _leave()
        except OSError as error:
            result.close()
            outcome = Outcome("failed", "exception", f"it could not be forked: {error}", transient=True)
            self._tell({"is": "ended", "key": key, "exit_code": 1, "said": outcome.to_json()})
            return
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _OURS)
        self._children[pid] = child
        self._pids[key] = pid
        self._tell({"is": "started", "key": key, "pid": pid})

    def _become_child(self, nursery: int, environment: Mapping[str, str]) -> None:
        """Keep nothing of the nursery but its modules."""
        try:
            os.setsid()
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGINT, signal.default_int_handler)
            for number in (signal.SIGTERM, signal.SIGCHLD):
                signal.signal(number, signal.SIG_DFL)
            orphans.end_with(nursery)
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
            if pid in self._children:
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


def _work(task: Task, result: int) -> None:
    from assay.sweep.work import run_task

    process = os.getpid()
    outcome = run_task(task)
    if os.getpid() == process:  # not for a process that the job has forked and not kept to itself
        with suppress(OSError):
            os.write(result, outcome.to_json().encode())


def _check(connection: int) -> None:
    from assay.sweep.checker import serve

    serve(connection)


def _leave() -> NoReturn:
    """End as a program does, without what the nursery's own modules would do at its end."""
    import atexit
    import threading

    try:
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
