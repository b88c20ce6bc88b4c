"""The driver's end of the process that jobs are forked from; see `assay.sweep.worker.fork_server`."""

from __future__ import annotations

import atexit
import itertools
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
import uuid
from contextlib import suppress
from dataclasses import dataclass, field, replace
from multiprocessing.connection import wait
from typing import IO, TYPE_CHECKING, Final, final

from assay.errors import AssayError, ProcessError
from assay.process import orphans
from assay.sweep.worker.exit_status import ExitStatus
from assay.sweep.worker.fork_server import FORK, FORK_TRIAL, KILL, RECORD, STATUS, STOP

if TYPE_CHECKING:
    from collections.abc import Collection

    from assay.sweep.job_spec import JobSpec

MARK: Final = "ASSAY_FORK_SERVER"
"""Variable by which everything that a fork server has started is found when it is gone."""
_ONE_THREAD: Final = {
    **dict.fromkeys(
        ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS"), "1"
    ),
    "JE_ARROW_MALLOC_CONF": "background_thread:false",
}
"""For the fork server alone: libraries start threads while they are imported. Jobs have the driver's own."""
_SIGKILL: Final = -9
_PATIENCE: Final = 15.0
"""Seconds for a fork server to end after its driver has let go of it: its own grace period, and some."""
_LEAVE: Final = 2.0
"""Seconds for a process that was killed to be gone."""
_shared: list[ForkServer] = []


@final
@dataclass
class _Running:
    connection: socket.socket
    received: bytearray = field(default_factory=bytearray)
    start: float = field(default_factory=time.monotonic)


@final
class ForkServer:
    """Starts processes for jobs and checks within milliseconds; begins to import in the background."""

    def __init__(self) -> None:
        if not hasattr(os, "fork"):
            raise AssayError("jobs side by side need a system that can fork", hint="use Linux, macOS or WSL")
        self._owner = os.getpid()
        self._keys = itertools.count(1)
        self._running: dict[int, _Running] = {}
        self._ended: dict[int, ExitStatus] = {}
        self._failure = ""  # of a fork server that died before it was ready
        self._process: subprocess.Popen[bytes] | None = self._spawn()

    @classmethod
    def shared(cls) -> ForkServer:
        """The one of this process; it ends with it."""
        if not _shared or _shared[0]._owner != os.getpid():  # a fork has a parent's, and must not use it
            _shared[:] = [cls()]
            atexit.register(_shared[0].close)
        return _shared[0]

    @property
    def pid(self) -> int:
        """Process id of the fork server; it is started if it does not run."""
        return self._alive().pid

    def start(self, job_spec: JobSpec) -> int:
        """Start a job and return at once."""
        kind = FORK if job_spec.trial is None else FORK_TRIAL
        key, connection = self._fork(kind, job_spec.to_json())
        self._running[key] = _Running(connection)
        return key

    def connect(self) -> socket.socket:
        """Start a process that checks jobs; see `assay.sweep.worker.check_process`."""
        return self._fork(FORK)[1]

    def stop(self, key: int, *, now: bool) -> None:
        """Ask a process to save and end (SIGTERM), or end it with all that it has started (SIGKILL)."""
        if key in self._running:
            with suppress(OSError):
                self._socket.sendall(RECORD.pack(KILL if now else STOP, key))

    def wait(self, keys: Collection[int], seconds: float) -> dict[int, ExitStatus]:
        """Wait until one of some processes ends, or the time is over."""
        deadline = time.monotonic() + seconds
        while True:
            running = {self._running[key].connection: key for key in keys if key in self._running}
            server = [self._socket] if self._process is not None else []
            for ready in wait([*running, *server], max(0.0, deadline - time.monotonic())):
                if ready is self._socket:
                    self._listen()
                elif running[ready] in self._running:  # type: ignore[index]  # one of the sockets
                    self._receive(running[ready])  # type: ignore[index]  # as above
            ended = {key: self._ended.pop(key) for key in keys if key in self._ended}
            if ended or time.monotonic() >= deadline:
                return ended

    def close(self) -> None:
        """End the fork server and all that it started: what still runs is told to save, and has seconds."""
        if self._owner != os.getpid():
            return
        self._hear()
        process, self._process = self._process, None
        if process is None:
            return
        self._socket.close()
        try:
            if self._ready:
                process.wait(_PATIENCE)
        except (subprocess.TimeoutExpired, KeyboardInterrupt):
            pass  # what has not ended by now is ended
        if process.poll() is None:  # one that is still importing has started nothing, and would go on
            process.kill()
            process.wait()
            orphans.kill_marked(MARK, self._token)
        self._log.close()

    # -- the process ---------------------------------------------------------------------------------------

    def _spawn(self) -> subprocess.Popen[bytes]:
        self._token = uuid.uuid4().hex
        self._socket, theirs = socket.socketpair()
        self._log: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - as long as the fork server lives
        self._ready = False
        with theirs:
            # -P: else a file torch.py in the current directory would be taken for torch. A session of its
            # own: Ctrl-C is for the driver, which tells the jobs what to do.
            return subprocess.Popen(  # noqa: S603 - our own interpreter
                [sys.executable, "-P", "-m", "assay.sweep.worker.fork_server", str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=self._log,
                stderr=self._log,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
                env=os.environ | _ONE_THREAD | {MARK: self._token},
            )

    def _alive(self) -> subprocess.Popen[bytes]:
        """The fork server's process, which is started if it does not run."""
        self._hear()
        if self._process is None:
            if self._failure:
                failure, self._failure = self._failure, ""
                raise ProcessError(f"the process that jobs are forked from cannot be started: {failure}")
            self._process = self._spawn()
        return self._process

    def _fork(self, kind: bytes, job_spec: str = "") -> tuple[int, socket.socket]:
        self._alive()
        key = next(self._keys)
        request = {"job_spec": job_spec, "environment": os.environ | {MARK: self._token}}
        ours, theirs = socket.socketpair()
        with suppress(OSError):  # a fork server that has just died is heard of when it is waited for
            with theirs:
                socket.send_fds(self._socket, [RECORD.pack(kind, key)], [theirs.fileno()])
            ours.sendall(json.dumps(request).encode() + b"\n")
        return key, ours

    def _hear(self) -> None:
        """Take what the fork server has said: that it is ready, or gone."""
        while self._process is not None and wait([self._socket], 0):
            self._listen()

    def _listen(self) -> None:
        content = b""
        with suppress(ConnectionError):
            content = self._socket.recv(16)
        if content:
            self._ready = True
        else:
            self._lose()

    def _receive(self, key: int) -> None:
        """Take what a process or the fork server says of its end."""
        running = self._running[key]
        part = b""
        with suppress(ConnectionError):
            part = running.connection.recv(1 << 16)
        running.received += part
        outcome, _, status = running.received.rpartition(b"\n" + STATUS)
        if part and not (status.endswith(b"\n") and len(outcome) < len(running.received) - len(status)):
            return
        del self._running[key]
        running.connection.close()
        exit_status = ExitStatus(_SIGKILL, seconds=time.monotonic() - running.start)
        if part:
            exit_status = ExitStatus(**json.loads(STATUS + status))
        said = bytes(outcome).decode("utf-8", "replace")
        self._ended[key] = exit_status if exit_status.outcome else replace(exit_status, outcome=said)

    def _lose(self) -> None:
        """The fork server is gone: end what it has started, and tell it as killed."""
        process, self._process = self._process, None
        if process is None:
            return
        self._socket.close()
        process.kill()  # a fork server that merely closed its socket
        exit_code = process.wait()
        orphans.kill_marked(MARK, self._token)
        if not self._ready:
            self._log.seek(0)
            lines = self._log.read().decode("utf-8", "replace").strip().splitlines()
            self._failure = lines[-1] if lines else f"it ended with exit code {exit_code}"
        self._log.close()
        for key, running in self._running.items():
            running.connection.settimeout(_LEAVE)
            with running.connection, suppress(OSError):  # until a process that is dying is gone
                while running.connection.recv(1 << 16):
                    pass
            self._ended[key] = ExitStatus(_SIGKILL, seconds=time.monotonic() - running.start)
        self._running.clear()
