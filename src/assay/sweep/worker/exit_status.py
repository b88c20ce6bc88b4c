"""The end of a job's process, and what it says about the job."""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, final

from assay.errors import AssayError
from assay.files.symlinks import read_end
from assay.record.outcome import Outcome, of_signal, signal_name
from assay.record.run_record import FILE, RunRecord

if TYPE_CHECKING:
    from assay.record.outcome import Cause
    from assay.sweep.job_spec import JobSpec

_TAIL = 4096
_CLOCK = 1.0
"""Seconds by which a file system's clock may be behind."""


@final
@dataclass(frozen=True)
class ExitStatus:
    """What is known once a process has ended.

    Attributes:
        exit_code: Of the process; the negative number of the signal that killed it.
        outcome: That it left, as JSON; empty if it could not.
        memory_ran_out: Whether the kernel has killed a process to get memory while this one lived.
        seconds: It lived.
    """

    exit_code: int
    outcome: str = ""
    memory_ran_out: bool = False
    seconds: float = 0.0


def outcome_after(job_spec: JobSpec, exit_status: ExitStatus, *, signal_sent: str = "") -> Outcome:
    """How an attempt ended: as its process said, else as its record says, else as its exit status shows.

    Args:
        job_spec: Of the process.
        exit_status: Of the process.
        signal_sent: By this sweep: `SIGTERM`, `SIGKILL` or none.
    """
    with suppress(ValueError):
        return Outcome.from_json(exit_status.outcome)
    recorded = _recorded(job_spec, exit_status)
    if recorded is not None:
        return recorded
    if exit_status.exit_code >= 0:
        reason = f"its process ended with exit code {exit_status.exit_code} and did not say why"
        return Outcome("failed", "exception", reason, seconds=exit_status.seconds)
    name = signal_name(-exit_status.exit_code)
    if name == signal_sent or (signal_sent, name) == ("SIGKILL", "SIGTERM"):  # which was sent before
        return Outcome("interrupted", reason=f"ended by {name}", signal=name, seconds=exit_status.seconds)
    cause = of_signal(name, _tail(job_spec.output), memory_ran_out=exit_status.memory_ran_out)
    reason = f"its process was killed by {name}"
    if cause == "out_of_memory":
        reason += ", as memory had run out"
    return Outcome("failed", cause, reason, seconds=exit_status.seconds)


def outcome_of_lost(
    job_spec: JobSpec, seconds: float, signal_sent: str, cause: Cause, reason: str
) -> Outcome:
    """How an attempt ended whose machine is out of reach; the cause and reason where it has not said so."""
    outcome = outcome_after(job_spec, ExitStatus(-9, seconds=seconds), signal_sent="SIGKILL")
    if outcome.status != "interrupted" or signal_sent:
        return outcome
    return Outcome("failed", cause, reason, seconds=seconds)


def _recorded(job_spec: JobSpec, exit_status: ExitStatus) -> Outcome | None:
    """What the run's record says, if it has said how the run ended while the process lived."""
    path = Path(job_spec.cwd, job_spec.run_dir)
    with suppress(AssayError, OSError):
        if time.time() - (path / FILE).stat().st_mtime <= exit_status.seconds + _CLOCK:
            record = RunRecord.load(path)
            return None if record.status == "running" else record.outcome
    return None


def _tail(output: str) -> str:
    with suppress(OSError):  # an empty name is one of a folder
        return read_end(Path(output), _TAIL).decode("utf-8", "replace")
    return ""
