"""Jobs in the queue of a Slurm cluster, through submitit: the driver, and what a Slurm job does."""

from __future__ import annotations

import re
import signal
import subprocess
import time
import uuid
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, final

import msgspec
from typing_extensions import override

from assay.errors import AssayError, ConfigError
from assay.files.atomic import write_text
from assay.process import handle_signals
from assay.record.run_record import FILE as RECORD
from assay.record.run_record import Outcome
from assay.targets.resolve import require
from assay_cluster.world import GANG, find_world
from assay_sweep.job_spec import JobSpec, outcome_of_lost_job, signal_after
from assay_sweep.launcher.launcher import Count, Launcher, Threads
from assay_sweep.worker.fork_client import ClusterWorker

if TYPE_CHECKING:
    from collections.abc import Collection
    from types import FrameType

    from assay.record.run_record import Cause


_SAVE = 10.0
"""Seconds before the end of the time to save at which a job that has not saved is ended."""
_STAY = 600.0
"""Seconds for Slurm to end a job that it has told to (SIGTERM)."""


@final
class SlurmJob:
    """A job as submitit runs it: called on the machine that Slurm has found.

    Args:
        files: Path of the files by which it and the driver know of each other, without their suffix.
        job_spec: As JSON.
        token: Of this submission; the job that is submitted last has the one in the file.
        seconds: Before the end of its time at which Slurm warns it.
    """

    def __init__(self, files: str, job_spec: str, token: str, seconds: int) -> None:
        self.files = files
        self.job_spec = job_spec
        self.token = token
        self.seconds = seconds

    def __call__(self) -> None:
        """Run the job to its end, or go on with it."""
        from submitit import JobEnvironment

        files = Path(self.files)
        job_spec = JobSpec.from_json(self.job_spec)
        token = files.with_suffix(".token")
        if not token.is_file() or token.read_text(encoding="ascii") != self.token:
            return  # the sweep was killed before it could note this job, and has submitted another one
        environment = JobEnvironment()
        if job_spec.nodes > 1 and (world := find_world()) is not None:
            # Each node's process starts its own ranks; Slurm says where the first one is.
            gang = replace(world, launcher="assay", job=f"{world.job}.{self.token}")
            job_spec = replace(
                job_spec, environment={**job_spec.environment, GANG: gang.to_json()}
            )
            if gang.rank > 0:
                self._run(job_spec)
                return
        was_running = files.with_suffix(".running").exists()
        has_record = Path(job_spec.cwd, job_spec.run_dir, RECORD).is_file()
        job_spec = replace(job_spec, resume=has_record and (job_spec.resume or was_running))
        write_text(files.with_suffix(".running"), str(environment.job_id))
        stop, warning = _stop_signals()
        outcome, signals = self._run(job_spec)
        if outcome.status == "interrupted" and stop not in signals:
            try:
                if warning in signals:
                    # submitit queues the job again, and ends this process
                    signal.raise_signal(warning)
                # Slurm ends this job, or queues it again; if it ended by itself, its work would seem done.
                time.sleep(_STAY)
            except Exception as error:  # submitit's: it may not be queued again
                outcome = Outcome("failed", "timed_out", str(error))
        write_text(files.with_suffix(".outcome"), outcome.to_json())

    def checkpoint(self) -> Any:
        """What submitit queues again: the same."""
        from submitit.helpers import DelayedSubmission

        return DelayedSubmission(self)

    def _run(self, job_spec: JobSpec) -> tuple[Outcome, list[int]]:
        """The outcome, and the signals that have come."""
        stop, warning = _stop_signals()
        signals: list[int] = []

        def note(number: int, frame: FrameType | None) -> None:
            del frame
            signals.append(number)
            cluster_worker.stop("", now=number == signal.SIGALRM)
            if number == warning:
                signal.alarm(max(1, int(self.seconds - _SAVE)))

        # Slurm sends these to all processes of a job.
        with handle_signals(signal.SIG_IGN, (stop, warning)):
            cluster_worker = ClusterWorker()
        with handle_signals(note, (stop, warning, signal.SIGALRM)):
            outcome = cluster_worker.run("", job_spec)
            signal.alarm(0)
        cluster_worker.close()
        return outcome, signals


def _stop_signals() -> tuple[signal.Signals, signal.Signals]:
    """What tells a job to save and end for good, and what warns it of the end of its time: submitit's own."""
    from submitit import JobEnvironment

    warning = signal.Signals[f"SIG{JobEnvironment.USR_SIG}"]
    return signal.SIGUSR2 if warning == signal.SIGUSR1 else signal.SIGUSR1, warning


_FOLDER = "submitit"
_LOOK_EVERY = 0.25
"""Seconds between two looks for outcomes, which are files."""
_ASK_EVERY = 20.0
"""Seconds between two questions to the scheduler."""
_LATE = 10.0
"""Seconds by which another machine's files may be late here."""
_JOB_ID = re.compile(r"\d+(_\d+)?", re.ASCII)
_NOT_IN_SCRIPT = re.compile(r"[%\\\x00-\x1f\x7f\ud800-\udfff]")
"""In a path: what sbatch replaces, what ends a line of its options, and what has no encoding."""
OVER = (
    "",
    "BOOT_FAIL",
    "CANCELLED",
    "COMPLETED",
    "DEADLINE",
    "FAILED",
    "NODE_FAIL",
    "OUT_OF_MEMORY",
    "PREEMPTED",
    "REVOKED",
    "TIMEOUT",
)
"""States of a Slurm job that runs no more; one that Slurm does not know any more has none."""
NAME = "assay-"
"""What the names of Slurm jobs begin with."""
_ATTEMPT = re.compile(r"\d+-\d+", re.ASCII)


def query_states() -> dict[str, str] | None:
    """Slurm's state of each job of assay that it knows; None if it does not answer."""
    answer = _run_slurm("squeue", "--me", "--noheader", "--states=all", "--format=%i|%T|%j")
    if answer is None:
        return None
    jobs = (line.strip().split("|") for line in answer.splitlines() if line.count("|") == 2)
    return {job_id: state for job_id, state, name in jobs if name.startswith(NAME)}


def _run_slurm(*command: str) -> str | None:
    """Output of one of Slurm's programs; None if it fails, as for a job that it has forgotten."""
    try:
        done = subprocess.run(  # noqa: S603 - Slurm's own programs, and job ids that it gave
            command, capture_output=True, text=True, timeout=60, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout


@final
@dataclass(eq=False)
class _Submitted:
    """A job in the hands of the scheduler."""

    job_spec: JobSpec
    job_id: str
    files: Path
    start: float = field(default_factory=time.monotonic)
    signal_sent: str = ""
    gone: float | None = None
    state: str = "UNKNOWN"


@final
class SlurmLauncher(Launcher):
    """Runs each job as a Slurm job of its own, in a process of its own.

    Slurm's machines must see this one's files under the same paths. A job that Slurm takes the machine from
    saves, is queued again and goes on. When the sweep's driver is killed, its jobs stay where they are; the
    next driver takes them up.

    Args:
        sweep_dir: Of the sweep; takes what submitit and the jobs write, in `submitit`.
        partition: Of Slurm.
        account: Of Slurm.
        qos: Of Slurm.
        time: Minutes of one Slurm job.
        max_num_timeout: How often `time` may end before a job has failed.
        signal_delay_s: Seconds before the end of `time` at which a run saves.
        cpus_per_task: Of each job; None for its threads.
        mem_gb: Memory to ask for; None for what Slurm gives by itself.
        threads_per_job: Threads of each process of a job.
        jobs_at_once: How many jobs are queued or running at once.
        setup: Lines for the shell before each job.
        additional_parameters: Of sbatch.

    Raises:
        ConfigError: An argument cannot stand in a batch script, or submitit or Slurm is not there.
    """

    keeps_files: ClassVar[bool] = True

    def __init__(
        self,
        sweep_dir: Path,
        *,
        partition: str | None = None,
        account: str | None = None,
        qos: str | None = None,
        time: Count = 240,
        max_num_timeout: Annotated[int, msgspec.Meta(ge=0)] = 100,
        signal_delay_s: Count = 90,
        cpus_per_task: int | None = None,
        mem_gb: float | None = None,
        threads_per_job: Threads = 1,
        jobs_at_once: Count = 100,
        setup: list[str] | None = None,
        additional_parameters: dict[str, Any] | None = None,
    ) -> None:
        self._folder = (sweep_dir / _FOLDER).absolute()
        slurm: dict[str, Any] = {"partition": partition, "account": account, "qos": qos}
        for name, value in (slurm | (additional_parameters or {})).items():
            if "\n" in f"{name}{value}":
                raise ConfigError(
                    f"{name!r}={value!r} contains a line break", key="hydra.launcher"
                )
        if _NOT_IN_SCRIPT.search(str(self._folder)):
            raise ConfigError(
                f"Slurm cannot write into {str(self._folder)!r}: expected a path without %, backslashes and "
                "control characters",
                key="hydra.sweep.dir",
                hint="cd to another directory, or hydra.sweep.dir=/SOMEWHERE/ELSE",
            )
        # A folder of its own for each driver: submitit unpickles what lies where it is about to write.
        self._executor = _make_executor(self._folder / uuid.uuid4().hex[:12], max_num_timeout)
        self._threads = threads_per_job
        self._cpus = cpus_per_task
        self._delay = signal_delay_s
        self._jobs_at_once = jobs_at_once
        # Else a file torch.py in the current directory would be taken for torch.
        slurm |= {
            "setup": ["export PYTHONSAFEPATH=1", *(setup or [])],
            "signal_delay_s": signal_delay_s,
            "additional_parameters": additional_parameters,
        }
        parameters = {f"slurm_{name}": value for name, value in slurm.items()}
        parameters |= {"timeout_min": time, "mem_gb": mem_gb}
        self._parameters = {
            name: value for name, value in parameters.items() if value not in (None, [], {})
        }
        self._running: dict[int, _Submitted] = {}
        self._asked = 0.0
        self._left = self._find_left()

    @property
    @override
    def slots(self) -> int:
        return self._jobs_at_once

    @property
    @override
    def has_gpus(self) -> bool:
        """Never known before a job is there: a job on GPUs says `device=gpu`."""
        return False

    @override
    def has_room(self, job_spec: JobSpec) -> bool:
        del job_spec
        return len(self._running) < self._jobs_at_once

    @override
    def check_nodes(self, job_spec: JobSpec) -> None:
        """Slurm itself refuses what it cannot hold."""

    @override
    def start(self, job_spec: JobSpec) -> None:
        files = self._folder / f"{job_spec.number}-{job_spec.attempt}"
        ready = replace(job_spec, threads=self._threads)
        job_id = self._left.pop(files.name, "")
        if not job_id:
            self._forget(files)
            token = uuid.uuid4().hex
            write_text(files.with_suffix(".token"), token)
            job_id = self._submit(
                ready, SlurmJob(str(files), ready.to_json(), token, self._delay)
            )
            write_text(files.with_suffix(".job"), job_id)
        self._running[job_spec.number] = _Submitted(ready, job_id, files)

    @override
    def wait(self, seconds: float) -> dict[int, Outcome]:
        deadline = time.monotonic() + seconds
        while True:
            self._ask()
            ended = {
                number: outcome
                for number, submitted in self._running.items()
                if (outcome := self._outcome(submitted)) is not None
            }
            for number in ended:
                self._forget(self._running.pop(number).files)
            remaining = deadline - time.monotonic()
            if ended or remaining <= 0 or not self._running:
                return ended
            time.sleep(min(remaining, _LOOK_EVERY))

    @override
    def kept(self) -> Collection[int]:
        return {int(name.partition("-")[0]) for name in self._left}

    @override
    def stop(self, number: int, *, now: bool) -> None:
        submitted = self._running.get(number)
        if submitted is None:
            return
        submitted.signal_sent = signal_after(submitted.signal_sent, now=now)
        if submitted.files.with_suffix(".running").exists():
            name = "KILL"
            if not now:
                name = _stop_signals()[0].name.removeprefix("SIG")
            _run_slurm("scancel", f"--signal={name}", submitted.job_id)
        else:
            _run_slurm("scancel", submitted.job_id)

    @override
    def close(self) -> None:
        for name, job_id in self._left.items():
            _run_slurm("scancel", job_id)
            self._forget(self._folder / name)
        self._left = {}
        self.end_at_once(self._running, self._running)

    # -- the scheduler -------------------------------------------------------------------------------------

    def _submit(self, job_spec: JobSpec, job: SlurmJob) -> str:
        cpus = self._cpus or self._threads * job_spec.processes
        try:
            self._executor.update_parameters(
                **self._parameters,
                name=f"{NAME}{job_spec.number}",
                nodes=job_spec.nodes,
                tasks_per_node=1,
                cpus_per_task=cpus,
                gpus_per_node=job_spec.gpus,
            )
            return str(self._executor.submit(job).job_id)
        except Exception as error:  # submitit's own kinds, and those of what it calls
            raise AssayError(f"Slurm refused job {job_spec.number}: {error}") from error

    def _ask(self) -> None:
        """Find out now and then which jobs the scheduler still has."""
        now = time.monotonic()
        is_urgent = any(submitted.signal_sent for submitted in self._running.values())
        if now - self._asked < (1.0 if is_urgent else _ASK_EVERY):
            return
        states_by_id = query_states()
        self._asked = time.monotonic()
        if states_by_id is None:
            return
        for submitted in self._running.values():
            submitted.state = states_by_id.get(submitted.job_id, "")
            if submitted.state in OVER:
                submitted.gone = submitted.gone or now
            else:
                submitted.gone = None

    def _outcome(self, submitted: _Submitted) -> Outcome | None:
        with suppress(OSError, ValueError):
            return Outcome.from_json(
                submitted.files.with_suffix(".outcome").read_text(encoding="utf-8")
            )
        if submitted.gone is None or (
            time.monotonic() - submitted.gone < _LATE and not submitted.signal_sent
        ):
            return None
        state = submitted.state.lower().replace("_", " ") or "gone"
        cause: Cause = "killed"
        if submitted.state == "OUT_OF_MEMORY":
            cause = "out_of_memory"
        return outcome_of_lost_job(
            submitted.job_spec,
            time.monotonic() - submitted.start,
            submitted.signal_sent,
            cause,
            f"its Slurm job {submitted.job_id} is {state}; see {self._folder}",
        )

    def _find_left(self) -> dict[str, str]:
        """Attempts of an earlier driver that are still there or have left an outcome, and their job ids."""
        files = [path for name in ("*.running", "*.job") for path in self._folder.glob(name)]
        noted = {path.stem: path.read_text("ascii", "replace") for path in files}
        left = {
            name: job_id
            for name, job_id in noted.items()
            if _ATTEMPT.fullmatch(name) and _JOB_ID.fullmatch(job_id)  # the files are not trusted
        }
        if not left or (states_by_id := query_states()) is None:
            return left
        return {
            name: job_id
            for name, job_id in left.items()
            if (self._folder / f"{name}.outcome").exists()
            or states_by_id.get(job_id, "") not in OVER
        }

    def _forget(self, files: Path) -> None:
        for suffix in (".token", ".job", ".running", ".outcome"):
            files.with_suffix(suffix).unlink(missing_ok=True)


def _make_executor(folder: Path, max_num_timeout: int) -> Any:
    require("hydra.launcher", "this launcher", "submitit")
    import submitit

    try:
        return submitit.AutoExecutor(
            folder, cluster="slurm", slurm_max_num_timeout=max_num_timeout
        )
    except RuntimeError as error:
        raise ConfigError(
            "there is no Slurm here: srun is not found",
            key="hydra/launcher",
            hint="hydra/launcher=local",
        ) from error
