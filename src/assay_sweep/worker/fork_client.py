"""The driver's end of the process that jobs are forked from; see `assay_sweep.worker.fork_server`."""

from __future__ import annotations

import atexit
import functools
import itertools
import os
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass, field, replace
from multiprocessing import Pipe
from multiprocessing.connection import wait
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, final

from assay.assemble.trainer_options import WORLD_SIZES
from assay.check.report import Proof, Report
from assay.errors import AssayError, ProcessError
from assay.record.run_record import Outcome, reason_of
from assay_sweep.job_spec import ExitStatus, outcome_after, signal_after, to_text

if TYPE_CHECKING:
    from collections.abc import Collection
    from multiprocessing.connection import Connection

    from assay.compose.compose import Job
    from assay_sweep.job_spec import JobSpec

FORK = "fork"
FORK_TRIAL = "fork trial"
STOP = "stop"
KILL = "kill"
_ONE_THREAD = {
    **dict.fromkeys(
        ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS"), "1"
    ),
    "JE_ARROW_MALLOC_CONF": "background_thread:false",
}
"""For the fork server alone: libraries start threads while they are imported. Jobs have the driver's own."""
_SIGKILL = -9
_PATIENCE = 15.0
"""Seconds for a fork server to end after its driver has let go of it: its own grace period, and some."""
_TICK = 0.25
"""Seconds between two looks at whether a job is to be stopped."""


@final
@dataclass
class _Running:
    connection: Connection
    outcome: str = ""
    start: float = field(default_factory=time.monotonic)


@final
class ForkServer:
    """Starts processes for jobs and checks within milliseconds; begins to import in the background."""

    def __init__(self) -> None:
        if not hasattr(os, "fork"):
            raise AssayError(
                "parallel jobs need an operating system that can fork",
                hint="use Linux, macOS or WSL",
            )
        self._owner = os.getpid()
        self._keys = itertools.count(1)
        self._running: dict[int, _Running] = {}
        self._failure = ""  # of a fork server that died before it was ready
        self._process: subprocess.Popen[bytes] | None = self._spawn()

    @classmethod
    @functools.cache
    def shared(cls) -> ForkServer:
        """The one of this process; it ends with it."""
        fork_server = cls()
        atexit.register(fork_server.close)
        return fork_server

    @property
    def pid(self) -> int:
        """Process id of the fork server; it is started if it does not run."""
        return self._alive().pid

    def start(self, job_spec: JobSpec) -> int:
        """Start a job and return at once."""
        key, connection = self._fork(job_spec)
        self._running[key] = _Running(connection)
        return key

    def connect(self) -> Connection:
        """Start a process that checks jobs."""
        return self._fork(None)[1]

    def stop(self, key: int, *, now: bool) -> None:
        """Ask a process to save and end (SIGTERM), or end it with all that it has started (SIGKILL)."""
        if key in self._running:
            with suppress(OSError):
                self._control.send((KILL if now else STOP, key))

    def wait(self, keys: Collection[int], seconds: float) -> dict[int, ExitStatus]:
        """Wait until one of some processes ends, or the time is over."""
        deadline = time.monotonic() + seconds
        ended: dict[int, ExitStatus] = {}
        while True:
            running = {self._running[key].connection: key for key in keys if key in self._running}
            waited_for = list(running)
            if self._process is not None:
                waited_for.append(self._control)
            for ready in wait(waited_for, max(0.0, deadline - time.monotonic())):
                if ready is self._control:
                    self._listen()
                elif (exit_status := self._receive(key := running[ready])) is not None:  # type: ignore[index]  # one of the connections
                    ended[key] = exit_status
            if ended or time.monotonic() >= deadline:
                return ended

    def close(self) -> None:
        """End the fork server and all that it started: what still runs is told to save, and has seconds."""
        if os.getpid() != self._owner:  # in a process that the user's program has forked
            return
        self._hear()
        process = self._process
        self._process = None
        if process is None:
            return
        self._control.close()
        # One that is still importing has started nothing, and would go on.
        with suppress(subprocess.TimeoutExpired, KeyboardInterrupt):
            process.wait(_PATIENCE if self._is_ready else 0)
        process.kill()
        process.wait()
        self._log.close()

    # -- the process ---------------------------------------------------------------------------------------

    def _spawn(self) -> subprocess.Popen[bytes]:
        self._control, theirs = Pipe()
        self._log: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - as long as the fork server lives
        self._is_ready = False
        with theirs:
            # -P: else a file torch.py in the current directory would be taken for torch. A session of its
            # own: Ctrl-C is for the driver, which tells the jobs what to do.
            return subprocess.Popen(  # noqa: S603 - our own interpreter
                [
                    sys.executable,
                    "-P",
                    "-m",
                    "assay_sweep.worker.fork_server",
                    str(theirs.fileno()),
                ],
                stdin=subprocess.DEVNULL,
                stdout=self._log,
                stderr=self._log,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
                env=os.environ | _ONE_THREAD,
            )

    def _alive(self) -> subprocess.Popen[bytes]:
        """The fork server's process, which is started if it does not run."""
        self._hear()
        if self._process is None:
            if self._failure:
                failure = self._failure
                self._failure = ""
                raise ProcessError(
                    f"the process that jobs are forked from cannot be started: {failure}"
                )
            self._process = self._spawn()
        return self._process

    def _fork(self, job_spec: JobSpec | None) -> tuple[int, Connection]:
        self._alive()
        key = next(self._keys)
        ours, theirs = Pipe()
        is_trial = job_spec is not None and job_spec.trial is not None
        # a fork server that has just died is heard of when it is waited for
        with suppress(OSError):
            with (
                theirs,
                socket.fromfd(
                    self._control.fileno(), socket.AF_UNIX, socket.SOCK_STREAM
                ) as control,
            ):
                self._control.send((FORK_TRIAL if is_trial else FORK, key))
                socket.send_fds(control, [b"."], [theirs.fileno()])
            ours.send((dict(os.environ), job_spec))
        return key, ours

    def _hear(self) -> None:
        """Read messages of the fork server: that it is ready, or gone."""
        while self._process is not None and self._control.poll():
            self._listen()

    def _listen(self) -> None:
        try:
            self._control.recv()
            self._is_ready = True
        except (EOFError, OSError):
            self._lose()

    def _receive(self, key: int) -> ExitStatus | None:
        """Receive the outcome from a process, or its exit status from the fork server."""
        running = self._running[key]
        try:
            message: str | ExitStatus = running.connection.recv()
        except (EOFError, OSError):  # the fork server is gone, and its jobs with it
            message = ExitStatus(_SIGKILL, seconds=time.monotonic() - running.start)
        if isinstance(message, str):
            running.outcome = message
            return None
        del self._running[key]
        running.connection.close()
        return replace(message, outcome=message.outcome or running.outcome)

    def _lose(self) -> None:
        """The fork server is gone."""
        process = self._process
        self._process = None
        if process is None:
            return
        self._control.close()
        process.kill()  # a fork server that merely closed its end
        exit_code = process.wait()
        if not self._is_ready:
            self._log.seek(0)
            printed = self._log.read().decode("utf-8", "replace").strip().splitlines()
            self._failure = [f"it ended with exit code {exit_code}", *printed][-1]
        self._log.close()


# a process that the user's program forks has a server of its own
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=ForkServer.shared.cache_clear)


@final
class CheckProcess:
    """Asks one process about every job, so that it does once what they have in common."""

    def __init__(self, fork_server: ForkServer) -> None:
        self._fork_server = fork_server
        self._connection: Connection | None = None

    def prove(self, job: Job) -> Proof:
        """Refuse a job that cannot run; what was made to find that out stays in the process."""
        answer = self._ask((to_text(job.config), list(job.overrides), str(Path.cwd())))
        return Proof(Report(job.overrides, str(job.config["name"]), **answer))

    def gpus(self) -> int:
        """How many GPUs there are."""
        return int(self._ask(None)["gpus"])

    def close(self) -> None:
        """End the process."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _ask(self, question: tuple[str, list[str], str] | None) -> dict[str, Any]:
        if self._connection is None:
            self._connection = self._fork_server.connect()
        answer: dict[str, Any] | AssayError | ExitStatus | None
        try:
            self._connection.send(question)
            answer = self._connection.recv()
        except (EOFError, OSError):
            answer = None
        except BaseException:
            self.close()  # its answer would be taken for that of the next question
            raise
        if isinstance(answer, AssayError):
            raise answer
        if not isinstance(answer, dict):  # the process has ended
            self.close()
            raise AssayError(
                "the process that checked this job died",
                hint="assay check with the same overrides shows how",
            )
        return answer


_OF_LAUNCHERS = (
    *(*WORLD_SIZES, "SLURM_STEP_ID"),
    "SLURM_NTASKS_PER_NODE",
    "SLURM_PROCID",
    "SLURM_LOCALID",
)
"""By these a job would take itself for one rank of several, as in an allocation in which a cluster runs."""


@final
class ClusterWorker:
    """Runs jobs on a cluster one after another, each forked from a fork server of this process."""

    def __init__(self) -> None:
        self._fork_server = ForkServer()
        self._stops: dict[str, str] = {}

    def ready(self) -> bool:
        """Tells that there is a place for this process."""
        return True

    def run(self, key: str, job_spec: JobSpec) -> Outcome:
        """Run a job to its end; never raises."""
        environment = dict.fromkeys(_OF_LAUNCHERS) | job_spec.environment
        try:
            return self._run(key, replace(job_spec, environment=environment))
        except Exception as error:  # whatever it is, the launcher waits for an answer
            return Outcome("failed", "machine", reason_of(error))
        finally:
            self._stops.pop(key, None)

    def stop(self, key: str, *, now: bool) -> None:
        """Ask a job to save and end, or end it at once; by another thread or a signal, and before `run`."""
        self._stops[key] = signal_after(self._stops.get(key, ""), now=now)

    def close(self) -> None:
        """End what runs and the fork server."""
        self._fork_server.close()

    def _run(self, key: str, job_spec: JobSpec) -> Outcome:
        process = self._fork_server.start(job_spec)
        signal_sent = ""
        while True:
            for exit_status in self._fork_server.wait((process,), _TICK).values():
                return outcome_after(job_spec, exit_status, signal_sent=signal_sent)
            wanted_signal = self._stops.get(key, "")
            if wanted_signal != signal_sent:
                self._fork_server.stop(process, now=wanted_signal == "SIGKILL")
                signal_sent = wanted_signal
