"""A job for a launcher as plain data, and how its process ended."""

from __future__ import annotations

import json
import time
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, final

import yaml

from assay.config.serialize import exact_json
from assay.errors import AssayError
from assay.files.symlinks import read_tail
from assay.record.run_record import FILE, OUT_OF_MEMORY, Cause, Outcome, RunRecord
from assay_cluster.children import signal_name


@final
@dataclass(frozen=True)
class JobSpec:
    """One attempt at one job of a sweep.

    Attributes:
        number: Of the job, from 0.
        attempt: From 1.
        run_dir: Where it writes.
        config: The composed job as `assay.config.serialize.to_text` writes it.
        overrides: What stands for this job in the sweep, such as `optimizer.lr=0.1`.
        choices: Which option of each group.
        spec: What the data is, as the check found it; empty where the check had to read the data.
        resume: Go on with the run that lies in `run_dir`.
        output: File that takes what the job prints.
        cwd: Directory in which it runs.
        environment: Variables it gets beside those of the sweep's own process; None takes one away.
        nodes: It runs on.
        processes: It starts on each node, one per device.
        gpus: It needs on each node; 0 for a job that runs on the CPU.
        threads: Of each of its processes.
        memory_gb: It may take at most; None for any amount.
        timeout_min: Minutes that it may run; None for any time.
        finished: Directories of runs with its fingerprint, one of which it may be.
        trial: Where it reports its score after each validation and asks whether to go on; see
            `assay_sweep.pruning.Pruning`. None outside a study.
    """

    number: int
    attempt: int
    run_dir: str
    config: str
    overrides: list[str]
    choices: dict[str, Any]
    spec: dict[str, Any] = field(default_factory=dict)
    resume: bool = False
    output: str = ""
    cwd: str = "."
    environment: dict[str, str | None] = field(default_factory=dict)
    nodes: int = 1
    processes: int = 1
    gpus: int = 0
    threads: int = 1
    memory_gb: float | None = None
    timeout_min: float | None = None
    finished: list[str] = field(default_factory=list)
    trial: dict[str, Any] | None = None

    def to_json(self) -> str:
        """One line of JSON."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> JobSpec:
        """Read `to_json` back.

        Args:
            text: One line of JSON.

        >>> job_spec = JobSpec(0, 1, "sweep/0", "{}", ["seed=1"], {"data": "digits"})
        >>> JobSpec.from_json(job_spec.to_json()) == job_spec
        True
        """
        return cls(**json.loads(text))


TIMED_OUT = 124
"""Exit code of a job that has not ended in time; coreutils' `timeout` has the same."""
_TAIL = 4096
_CLOCK = 1.0
"""Seconds by which a file system's clock may be behind."""


@final
@dataclass(frozen=True)
class ExitStatus:
    """How a process ended.

    Attributes:
        exit_code: Of the process; the negative number of the signal that killed it.
        outcome: Its outcome as JSON; empty if it could not leave one.
        memory_ran_out: Whether the kernel has killed a process to get memory while this one lived.
        seconds: It lived.
    """

    exit_code: int
    outcome: str = ""
    memory_ran_out: bool = False
    seconds: float = 0.0


def outcome_after(
    job_spec: JobSpec, exit_status: ExitStatus, *, signal_sent: str = ""
) -> Outcome:
    """How an attempt ended: as its process said, else as its record says, else as its exit status shows.

    Args:
        job_spec: Of the process.
        exit_status: Of the process.
        signal_sent: By this sweep: `SIGTERM`, `SIGKILL` or none.
    """
    with suppress(ValueError):
        return Outcome.from_json(exit_status.outcome)
    if exit_status.exit_code == TIMED_OUT and job_spec.timeout_min is not None:
        return timeout_outcome(job_spec, exit_status.seconds)
    if (recorded := _read_recorded_outcome(job_spec, exit_status)) is not None:
        return recorded
    seconds = exit_status.seconds
    if exit_status.exit_code >= 0:
        reason = f"its process ended with exit code {exit_status.exit_code} and gave no reason"
        return Outcome("failed", "exception", reason, seconds=seconds)
    name = signal_name(-exit_status.exit_code)
    # which was sent before
    if name == signal_sent or (signal_sent, name) == ("SIGKILL", "SIGTERM"):
        return Outcome("interrupted", reason=f"ended by {name}", signal=name, seconds=seconds)
    cause = cause_of_signal(
        name, _tail(job_spec.output), memory_ran_out=exit_status.memory_ran_out
    )
    reason = f"its process was killed by {name}"
    if cause == "out_of_memory":
        reason += ", as memory had run out"
    return Outcome("failed", cause, reason, seconds=seconds)


def signal_after(sent: str, *, now: bool) -> str:
    """The strongest signal that a process has got, once it is asked to end again."""
    if now:
        return "SIGKILL"
    return sent or "SIGTERM"


def timeout_outcome(job_spec: JobSpec, seconds: float) -> Outcome:
    """The outcome of an attempt that exceeded its time limit."""
    return Outcome(
        "failed", "timed_out", f"took longer than {job_spec.timeout_min:g} min", seconds=seconds
    )


def outcome_of_lost_job(
    job_spec: JobSpec, seconds: float, signal_sent: str, cause: Cause, reason: str
) -> Outcome:
    """The outcome of an attempt whose machine is out of reach; `cause` and `reason` if it recorded none."""
    outcome = outcome_after(job_spec, ExitStatus(-9, seconds=seconds), signal_sent="SIGKILL")
    if outcome.status != "interrupted" or signal_sent:
        return outcome
    return Outcome("failed", cause, reason, seconds=seconds)


def _read_recorded_outcome(job_spec: JobSpec, exit_status: ExitStatus) -> Outcome | None:
    """What the run's record says, if it has said how the run ended while the process lived."""
    path = Path(job_spec.cwd, job_spec.run_dir)
    with suppress(AssayError, OSError):
        if time.time() - (path / FILE).stat().st_mtime <= exit_status.seconds + _CLOCK:
            record = RunRecord.load(path)
            if record.status == "running":
                return None
            return record.outcome
    return None


def _tail(output: str) -> str:
    with suppress(OSError):  # an empty name is one of a folder
        return read_tail(Path(output), _TAIL).decode("utf-8", "replace")
    return ""


def cause_of_signal(name: str, output: str, *, memory_ran_out: bool) -> Cause:
    """What the death of a process by a signal stands for."""
    if (name == "SIGKILL" and memory_ran_out) or (
        name in _FATAL and OUT_OF_MEMORY.search(output)
    ):
        return "out_of_memory"
    return "killed"


_FATAL = frozenset(("SIGABRT", "SIGSEGV", "SIGBUS"))


def to_text(plain: Any) -> str:
    """A job as plain data, for another process: a line of JSON; YAML where a key is not text."""
    return exact_json(plain) or yaml.safe_dump(plain)
