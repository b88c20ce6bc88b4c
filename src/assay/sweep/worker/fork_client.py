"""The driver's end of the process that jobs are forked from; see `assay.sweep.worker.fork_server`."""

from __future__ import annotations

import atexit
import json
import os
import select
import socket
import subprocess
import sys
import tempfile
import time
import uuid
from contextlib import suppress
from typing import IO, TYPE_CHECKING, Any, Final, final

from assay.errors import AssayError, ProcessError
from assay.process import orphans
from assay.sweep.worker.exit_status import ExitStatus

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
_shared: list[ForkServer] = []


@final
class ForkServer:
    """Starts processes for jobs and checks within milliseconds; begins to import in the background."""

    def __init__(self) -> None:
        if not hasattr(os, "fork"):
            raise AssayError("jobs side by side need a system that can fork", hint="use Linux, macOS or WSL")
        self._owner = os.getpid()
        self._keys = 0
        self._running: dict[int, float] = {}
        self._pids: dict[int, int] = {}
        self._ended: dict[int, ExitStatus] = {}
        self._inbox = bytearray()
        self._process: subprocess.Popen[bytes] | None = None
        self._ready = False
        self._said = ""  # by a fork server that died before it was ready, last
        self._spawn()

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
        return self._ask({"do": "run", "job_spec": job_spec.to_json()})

    def connect(self) -> socket.socket:
        """Start a process that checks jobs; see `assay.sweep.worker.check_process`."""
        ours, theirs = socket.socketpair()
        with theirs:
            key = self._ask({"do": "check"}, theirs.fileno())
        del self._running[key]  # its end is told by the socket
        return ours

    def stop(self, key: int, *, now: bool) -> None:
        """Ask a process to save and end (SIGTERM), or end it with all that it has started (SIGKILL)."""
        if key in self._running:
            with suppress(OSError):
                self._send({"do": "stop", "key": key, "now": now})

    def wait(self, keys: Collection[int], seconds: float) -> dict[int, ExitStatus]:
        """Wait until one of some processes ends, or the time is over."""
        deadline = time.monotonic() + seconds
        while True:
            self._receive(0)
            ended = {key: self._ended.pop(key) for key in keys if key in self._ended}
            left = deadline - time.monotonic()
            if ended or left <= 0 or not self._receive(left):
                return ended

    def close(self) -> None:
        """End the fork server and all that it started: what still runs is told to save, and has seconds."""
        if self._owner != os.getpid():
            return
        while self._receive(0):  # it may have said that it is ready
            pass
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
        self._inbox.clear()
        self._ready = False
        with theirs:
            # -P: else a file torch.py in the current directory would be taken for torch. A session of its
            # own: Ctrl-C is for the driver, which tells the jobs what to do.
            self._process = subprocess.Popen(  # noqa: S603 - our own interpreter
                [sys.executable, "-P", "-m", "assay.sweep.worker.fork_server", str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=self._log,
                stderr=self._log,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
                env=os.environ | _ONE_THREAD | {MARK: self._token},
            )
        return self._process

    def _alive(self) -> subprocess.Popen[bytes]:
        """The fork server's process, which is started if it does not run."""
        while self._receive(0):
            pass
        if self._process is not None:
            return self._process
        if self._said:
            said, self._said = self._said, ""
            raise ProcessError(f"the process that jobs are forked from cannot be started: {said}")
        return self._spawn()

    def _ask(self, message: dict[str, Any], descriptor: int | None = None) -> int:
        self._keys += 1
        content = message | {"key": self._keys, "environment": os.environ | {MARK: ""}}
        for last in (False, True):
            process = self._alive()
            content["environment"][MARK] = self._token
            self._running[self._keys] = time.monotonic()
            try:
                self._send(content, descriptor)
            except BaseException as error:
                del self._running[self._keys]
                self._lost(
                    process
                )  # it has just died; or it would wait for the rest of half a message for good
                if last or not isinstance(error, OSError):
                    raise
            else:
                break
        return self._keys

    def _send(self, message: dict[str, Any], descriptor: int | None = None) -> None:
        content = json.dumps(message).encode() + b"\n"
        if descriptor is not None:
            sent = socket.send_fds(self._socket, [content], [descriptor])
            content = content[sent:]
        self._socket.sendall(content)

    def _receive(self, seconds: float) -> bool:
        """Take what the fork server says within some time; whether there was anything."""
        process = self._process
        if process is None or not select.select([self._socket], [], [], max(0.0, seconds))[0]:
            return False
        try:
            content = self._socket.recv(1 << 20)
        except ConnectionError:
            content = b""
        if not content:
            self._lost(process)
            return True
        self._inbox += content
        *lines, rest = self._inbox.split(b"\n")
        self._inbox = bytearray(rest)
        for line in lines:
            self._take(json.loads(line))
        return True

    def _take(self, message: dict[str, Any]) -> None:
        kind, key = message.pop("is"), message.pop("key", 0)
        if kind == "ready":
            self._ready = True
        elif kind == "started":
            self._pids[key] = message["pid"]
        elif kind == "ended":
            self._pids.pop(key, None)
            if self._running.pop(key, None) is None:
                return
            self._ended[key] = ExitStatus(**message)

    def _lost(self, process: subprocess.Popen[bytes]) -> None:
        """The fork server is gone: end what it has started, and tell it as killed."""
        self._socket.close()
        process.kill()  # a fork server that merely closed its socket
        exit_code = process.wait()
        orphans.kill_marked(MARK, self._token, self._pids.values())
        self._pids.clear()
        if not self._ready:
            self._log.seek(0)
            lines = self._log.read().decode("utf-8", "replace").strip().splitlines()
            self._said = lines[-1] if lines else f"it ended with exit code {exit_code}"
        self._log.close()
        self._process = None
        for key, start in self._running.items():
            self._ended[key] = ExitStatus(_SIGKILL, seconds=time.monotonic() - start)
        self._running.clear()
