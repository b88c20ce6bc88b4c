"""A custom launcher: each job runs in a fresh process with a low priority."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, TYPE_CHECKING, final

from typing_extensions import override

from assay_sweep.job_spec import ExitStatus, JobSpec, outcome_after
from assay_sweep.launcher.launcher import Launcher

if TYPE_CHECKING:
    from assay.record.run_record import Outcome


@final
@dataclass(eq=False)
class _Running:
    job_spec: JobSpec
    process: subprocess.Popen[str]
    start: float = field(default_factory=time.monotonic)
    signal_sent: str = ""


@final
class NiceLauncher(Launcher):
    """Runs each job under `nice`, on the CPU, in a process that saves and ends when the sweep is gone.

    Args:
        niceness: Added to that of this process, 0 to 19.
        jobs_at_once: How many jobs run side by side.

    Raises:
        ValueError: An argument is out of its range.
    """

    def __init__(self, niceness: int = 10, jobs_at_once: int = 1) -> None:
        if not 0 <= niceness <= 19:
            raise ValueError(f"expected niceness from 0 to 19, got {niceness}")
        if jobs_at_once < 1:
            raise ValueError(f"expected jobs_at_once >= 1, got {jobs_at_once}")
        self._niceness, self._jobs_at_once = niceness, jobs_at_once
        self._running: dict[int, _Running] = {}

    @property
    @override
    def slots(self) -> int:
        return self._jobs_at_once

    @property
    @override
    def has_gpus(self) -> bool:
        return False

    @override
    def has_room(self, job_spec: JobSpec) -> bool:
        return len(self._running) < self._jobs_at_once

    @override
    def start(self, job_spec: JobSpec) -> None:
        command = ["nice", "-n", str(self._niceness), sys.executable, "-P", __file__]
        process = subprocess.Popen(  # noqa: S603 - nothing in it comes from a config
            command,
            cwd=job_spec.cwd,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,  # so that `stop` reaches all of a job's processes
        )
        if process.stdin is not None:  # it stays open: its end tells the job that the sweep is gone
            print(job_spec.to_json(), file=process.stdin, flush=True)
        self._running[job_spec.number] = _Running(job_spec, process)

    @override
    def wait(self, seconds: float) -> dict[int, Outcome]:
        deadline = time.monotonic() + seconds
        while True:
            ended = [number for number, one in self._running.items() if one.process.poll() is not None]
            if ended or not self._running or time.monotonic() >= deadline:
                return {number: self._end(number) for number in ended}
            time.sleep(min(0.1, max(0.0, deadline - time.monotonic())))

    @override
    def stop(self, number: int, *, now: bool) -> None:
        if (running := self._running.get(number)) is not None:
            running.signal_sent = "SIGKILL" if now else running.signal_sent or "SIGTERM"
            with suppress(ProcessLookupError):
                os.killpg(running.process.pid, signal.SIGKILL if now else signal.SIGTERM)

    @override
    def close(self) -> None:
        for number in self._running:
            self.stop(number, now=True)
        while self._running:
            self.wait(1.0)

    def _end(self, number: int) -> Outcome:
        running = self._running.pop(number)
        with suppress(ProcessLookupError):  # what the job has left behind
            os.killpg(running.process.pid, signal.SIGKILL)
        with running.process as process:
            output = process.stdout.read() if process.stdout is not None else ""
        status = ExitStatus(process.returncode, output, seconds=time.monotonic() - running.start)
        return outcome_after(running.job_spec, status, signal_sent=running.signal_sent)


def main() -> None:
    """What the process of a job does: a `JobSpec` comes in by stdin, its `Outcome` goes out by stdout."""
    job_spec = JobSpec.from_json(sys.stdin.readline())
    threading.Thread(target=_end_with, args=(sys.stdin,), daemon=True).start()
    with os.fdopen(os.dup(1), "w", encoding="utf-8") as answer:
        os.set_inheritable(answer.fileno(), False)
        from assay_sweep.worker.run_job import run_job_spec  # imports torch

        outcome = run_job_spec(replace(job_spec, output=str(Path(job_spec.output).absolute())))
        answer.write(outcome.to_json())


def _end_with(sweep: IO[str]) -> None:
    sweep.read()
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    main()
