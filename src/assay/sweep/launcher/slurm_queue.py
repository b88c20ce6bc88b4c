"""The queue of a Slurm cluster, or the processes that submitit's local executor has in place of one."""

from __future__ import annotations

import signal
import subprocess
from contextlib import suppress
from typing import TYPE_CHECKING, Final, final

import psutil

if TYPE_CHECKING:
    from collections.abc import Sequence

GONE: Final = ("", "BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY")
OVER: Final = (*GONE, "PREEMPTED", "REVOKED", "TIMEOUT")
"""States of a Slurm job that runs no more; one that Slurm does not know any more has none."""
QUEUED: Final = ("PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "SPECIAL_EXIT")
AT_ONCE: Final = "INT"
"""Signal that ends a job at once."""
NAME: Final = "assay-"
"""What the names of Slurm jobs begin with."""
_LOCAL: Final = "submitit.local._local"


@final
class SlurmQueue:
    """What the scheduler knows of jobs, and what it is told to do with them.

    Args:
        is_local: The jobs are processes of this machine.
    """

    def __init__(self, *, is_local: bool) -> None:
        self.is_local = is_local

    def states(self, job_ids: Sequence[str]) -> dict[str, str] | None:
        """The scheduler's word for each job that it knows; None where it does not answer."""
        if self.is_local:
            return {job_id: "RUNNING" for job_id in job_ids if _controller(job_id) is not None}
        answer = _slurm("squeue", "--me", "--noheader", "--states=all", "--format=%i|%T|%j")
        if answer is None:
            return None
        jobs = (line.strip().split("|") for line in answer.splitlines() if line.count("|") == 2)
        return {job_id: state for job_id, state, name in jobs if name.startswith(NAME)}

    def has(self, job_id: str) -> bool:
        """Whether a job waits or runs, as far as anybody knows."""
        states = self.states([job_id])
        return states is None or states.get(job_id, "") not in OVER

    def send(self, job_id: str, name: str) -> None:
        """Send a signal to the processes of a job.

        Args:
            job_id: Of the scheduler.
            name: Of the signal, without SIG.
        """
        if not self.is_local:
            _slurm("scancel", f"--signal={name}", job_id)
            return
        with suppress(psutil.Error):  # it has just ended
            if (controller := _controller(job_id)) is not None:
                for process in controller.children():
                    process.send_signal(signal.Signals[f"SIG{name}"])

    def cancel(self, job_id: str) -> None:
        """End a job, or take it out of the queue."""
        if self.is_local:
            self.send(job_id, AT_ONCE)
        else:
            _slurm("scancel", job_id)


def _slurm(*command: str) -> str | None:
    """What one of Slurm's programs says; None where it fails, as for a job that it has forgotten."""
    try:
        done = subprocess.run(  # noqa: S603 - Slurm's own programs, and job ids that it gave
            command, capture_output=True, text=True, timeout=60, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout


def _controller(job_id: str) -> psutil.Process | None:
    """The process that looks after a job of submitit's local executor."""
    with suppress(psutil.Error, ValueError):
        process = psutil.Process(int(job_id))
        # After lines for the shell it is a child of that; before it is there, the shell stands for it.
        if _names_controller(process):
            return next((child for child in process.children() if _names_controller(child)), process)
    return None


def _names_controller(process: psutil.Process) -> bool:
    try:
        return process.status() != psutil.STATUS_ZOMBIE and any(_LOCAL in word for word in process.cmdline())
    except psutil.Error:  # a task that has just ended says nothing of the controller
        return False
