"""Jobs in the queue of a Slurm cluster, through submitit: the driver, and what a Slurm job does."""

from __future__ import annotations

import re
import signal
import subprocess
import threading
import time
import uuid
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal, final

import psutil
from typing_extensions import override

from assay.config.serialize import MOST_THREADS, check_whole_number
from assay.errors import AssayError, ConfigError
from assay.files.atomic import write_text
from assay.process.stop_signals import handled_by
from assay.record.outcome import Outcome
from assay.record.run_record import FILE as RECORD
from assay.sweep.job_spec import JobSpec
from assay.sweep.launcher.cluster import ClusterWorker, variables
from assay.sweep.launcher.launcher import Launcher
from assay.sweep.worker.exit_status import outcome_of_lost
from assay.targets.optional_packages import install

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from types import FrameType

    from assay.record.outcome import Cause


AT_ONCE: Final = "INT"
"""Signal that ends a job at once."""
_SAVE: Final = 10.0
"""Seconds before the end of the time to save at which a job that has not saved is ended."""
_STAY: Final = 600.0
"""Seconds for Slurm to end a job that it has told to (SIGTERM)."""
_NAMED: Final = 60.0
"""Seconds for the driver to write down which Slurm job it has been given."""


@final
class SlurmJob:
    """A job as submitit runs it: called on the machine that Slurm has found."""

    def __init__(self, files: str, job_spec: str, seconds: float) -> None:
        self.files, self.job_spec, self.seconds = files, job_spec, seconds
        self._cluster_worker: ClusterWorker | None = None
        self._work: threading.Thread | None = None
        self._said = ""
        self._is_told = False

    def __call__(self) -> None:
        """Run the job to its end, or go on with it."""
        place = Path(self.files)
        if _is_superseded(place) or place.with_suffix(".outcome").exists():
            return
        job_spec = JobSpec.from_json(self.job_spec)
        again = place.with_suffix(".running").exists()
        has_record = Path(job_spec.cwd, job_spec.run_dir, RECORD).is_file()
        job_spec = replace(
            job_spec,
            resume=has_record and (job_spec.resume or again),
        )
        write_text(place.with_suffix(".running"), _job_id())
        try:
            self._run(job_spec)
        except Exception as error:  # submitit's: it may not be queued again
            if not self._is_final():
                self._said = Outcome("failed", "timed_out", str(error)).to_json()
        outcome = Outcome.from_json(self._said)
        if outcome.status == "interrupted" and not self._is_told:  # by Slurm's SIGTERM
            # Slurm ends this job, or queues it again: ending by itself would look like the end of the work.
            time.sleep(_STAY)
        write_text(place.with_suffix(".outcome"), self._said)

    def checkpoint(self) -> Any:
        """Save before the machine is taken away; submitit calls this in a signal's handler."""
        from submitit.helpers import DelayedSubmission

        if self._cluster_worker is not None and self._work is not None:
            self._cluster_worker.stop(0, now=False)
            self._work.join(max(1.0, self.seconds - _SAVE))
            if self._work.is_alive():
                self._cluster_worker.stop(0, now=True)
                self._work.join(_SAVE / 2)
        if self._is_final() or self._is_told:
            return None
        return DelayedSubmission(SlurmJob(self.files, self.job_spec, self.seconds))

    def _run(self, job_spec: JobSpec) -> None:
        stop = _number(stop_signal())
        # Slurm sends these to all processes of a job.
        with handled_by(signal.SIG_IGN, (signal.SIGUSR1, signal.SIGUSR2)):
            self._cluster_worker = ClusterWorker()
        for number in (stop, _number(AT_ONCE)):
            signal.signal(number, self._stop)
        # In a thread, so that the main one takes signals at once and may wait in their handlers.
        self._work = threading.Thread(target=self._keep, args=(self._cluster_worker, job_spec), daemon=True)
        self._work.start()
        try:
            while self._work.is_alive():
                self._work.join(0.5)
        finally:
            self._cluster_worker.close()

    def _keep(self, cluster_worker: ClusterWorker, job_spec: JobSpec) -> None:
        self._said = cluster_worker.run(0, job_spec.to_json())

    def _stop(self, number: int, frame: FrameType | None) -> None:
        del frame
        self._is_told = True
        if self._cluster_worker is not None:
            self._cluster_worker.stop(0, now=number == _number(AT_ONCE))

    def _is_final(self) -> bool:
        """Whether the job has ended otherwise than by being told to."""
        return bool(self._said) and Outcome.from_json(self._said).status != "interrupted"


def stop_signal() -> str:
    """Name of the signal that tells a job to save and end for good; the other one is submitit's own."""
    from submitit import JobEnvironment

    return "USR2" if JobEnvironment.USR_SIG == "USR1" else "USR1"


def _number(name: str) -> signal.Signals:
    return signal.Signals[f"SIG{name}"]


def _job_id() -> str:
    from submitit import JobEnvironment

    return str(JobEnvironment().job_id)


def _is_superseded(place: Path) -> bool:
    """Whether the sweep has submitted the job again, since it was killed before it could note this job."""
    deadline = time.monotonic() + _NAMED
    while time.monotonic() < deadline:
        with suppress(OSError):
            noted = place.with_suffix(".job").read_text(encoding="ascii").strip()
            return noted != _job_id()
        time.sleep(0.2)
    return False


_FOLDER: Final = "submitit"
_LOOK_EVERY: Final = 0.25
"""Seconds between two looks for outcomes, which are files."""
_ASK_EVERY: Final = {"slurm": 20.0, "local": 1.0}
"""Seconds between two questions to the scheduler."""
_LATE: Final = 10.0
"""Seconds by which another machine's files may be late here."""
_LEAVE: Final = 20.0
_JOB_ID: Final = re.compile(r"\d+(_\d+)?", re.ASCII)
_NOT_IN_SCRIPT: Final = re.compile(r"[%\\\x00-\x1f\x7f\ud800-\udfff]")
"""In a path: what sbatch replaces, what ends a line of its options, and what has no encoding."""
GONE: Final = ("", "BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY")
OVER: Final = (*GONE, "PREEMPTED", "REVOKED", "TIMEOUT")
"""States of a Slurm job that runs no more; one that Slurm does not know any more has none."""
QUEUED: Final = ("PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "SPECIAL_EXIT")
NAME: Final = "assay-"
"""What the names of Slurm jobs begin with."""
_LOCAL: Final = "submitit.local._local"
_ATTEMPT: Final = re.compile(r"\d+-\d+", re.ASCII)


@final
class SlurmQueue:
    """What the scheduler knows of jobs, and what it is told to do with them."""

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
        """Send a signal to the processes of a job."""
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
        cluster: `slurm`; `local` for the same in processes of this machine; None for Slurm where it is.
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
        ConfigError: An argument is out of its range, or submitit or Slurm is not there.
    """

    keeps_files: ClassVar[bool] = True

    def __init__(
        self,
        sweep_dir: Path,
        *,
        cluster: Literal["slurm", "local"] | None = None,
        partition: str | None = None,
        account: str | None = None,
        qos: str | None = None,
        time: int = 240,
        max_num_timeout: int = 100,
        signal_delay_s: int = 90,
        cpus_per_task: int | None = None,
        mem_gb: float | None = None,
        threads_per_job: int = 1,
        jobs_at_once: int = 100,
        setup: list[str] | None = None,
        additional_parameters: dict[str, Any] | None = None,
    ) -> None:
        check_whole_number("hydra.launcher.threads_per_job", threads_per_job, 1, MOST_THREADS)
        check_whole_number("hydra.launcher.max_num_timeout", max_num_timeout, 0)
        counts = {"time": time, "jobs_at_once": jobs_at_once, "signal_delay_s": signal_delay_s}
        for name, value in counts.items():
            check_whole_number(f"hydra.launcher.{name}", value, 1)
        self._folder = (sweep_dir / _FOLDER).absolute()
        options = {"partition": partition, "account": account, "qos": qos, **(additional_parameters or {})}
        for name, value in options.items():
            if "\n" in f"{name}{value}":
                raise ConfigError(f"{name!r}={value!r} contains a line break", key="hydra.launcher")
        if _NOT_IN_SCRIPT.search(str(self._folder)):
            raise ConfigError(
                f"Slurm cannot write into {str(self._folder)!r}: expected a path without %, backslashes and "
                "control characters",
                key="hydra.sweep.dir",
                hint="cd to another directory, or hydra.sweep.dir=/SOMEWHERE/ELSE",
            )
        # A folder of its own for each driver: submitit unpickles what lies where it is about to write.
        self._executor = _executor(self._folder / uuid.uuid4().hex[:12], cluster, max_num_timeout)
        self._queue = SlurmQueue(is_local=self._executor.cluster == "local")
        self._threads, self._cpus, self._delay = threads_per_job, cpus_per_task, signal_delay_s
        self._jobs_at_once = jobs_at_once
        parameters = {
            "timeout_min": time,
            "mem_gb": mem_gb,
            "local_setup": setup,
            "slurm_partition": partition,
            "slurm_account": account,
            "slurm_qos": qos,
            "slurm_signal_delay_s": signal_delay_s,
            "slurm_setup": setup,
            "slurm_additional_parameters": additional_parameters,
        }
        self._parameters = {name: value for name, value in parameters.items() if value not in (None, [], {})}
        self._running: dict[int, _Submitted] = {}
        self._jobs: list[Any] = []  # submitit's
        self._asked = 0.0
        self._left = self._noted("*.running") | self._noted("*.job")

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
    def start(self, job_spec: JobSpec) -> None:
        files = self._folder / f"{job_spec.number}-{job_spec.attempt}"
        kept = self._left.pop(files.name, None)
        if kept is not None and self._is_alive(kept, files):
            self._running[job_spec.number] = _Submitted(job_spec, kept, files)
            return
        self._forget(files)
        ready = replace(job_spec, threads=self._threads)
        delay = self._delay if not self._queue.is_local else 30
        job_id = self._submit(job_spec, SlurmJob(str(files), ready.to_json(), float(delay)))
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
            left = deadline - time.monotonic()
            if ended or left <= 0 or not self._running:
                return ended
            time.sleep(min(left, _LOOK_EVERY))

    @override
    def waits(self, number: int) -> bool:
        submitted = self._running.get(number)
        return submitted is not None and (
            submitted.state in QUEUED or not submitted.files.with_suffix(".running").exists()
        )

    @override
    def kept(self) -> Collection[int]:
        alive = [name for name, job_id in self._left.items() if self._is_alive(job_id, self._folder / name)]
        return {int(name.partition("-")[0]) for name in alive}

    @override
    def stop(self, number: int, *, now: bool) -> None:
        submitted = self._running.get(number)
        if submitted is None:
            return
        submitted.signal_sent = "SIGKILL" if now else submitted.signal_sent or "SIGTERM"
        if not self._queue.is_local and not submitted.files.with_suffix(".running").exists():
            self._queue.cancel(submitted.job_id)
        self._queue.send(submitted.job_id, AT_ONCE if now else stop_signal())
        self._asked = 0.0

    @override
    def close(self) -> None:
        for number in list(self._running):
            self.stop(number, now=True)
        for name, job_id in self._left.items():
            if self._is_alive(job_id, self._folder / name):
                self._queue.cancel(job_id)
            self._forget(self._folder / name)
        self._left = {}
        deadline = time.monotonic() + _LEAVE
        while self._running and time.monotonic() < deadline:
            self.wait(deadline - time.monotonic())
        for submitted in self._running.values():
            self._queue.cancel(submitted.job_id)
        while (
            self._queue.is_local and not all(job.done() for job in self._jobs) and time.monotonic() < deadline
        ):
            time.sleep(_LOOK_EVERY)

    # -- the scheduler -------------------------------------------------------------------------------------

    def _submit(self, job_spec: JobSpec, job: SlurmJob) -> str:
        cpus = self._cpus or self._threads * job_spec.processes
        try:
            self._executor.update_parameters(
                **self._parameters,
                name=f"{NAME}{job_spec.number}",
                nodes=1,
                tasks_per_node=1,
                cpus_per_task=cpus,
                gpus_per_node=job_spec.gpus,
            )
            with variables({"PYTHONSAFEPATH": "1"}):  # else a file torch.py here would be taken for torch
                self._jobs.append(self._executor.submit(job))
        except Exception as error:  # submitit's own kinds, and those of what it calls
            raise AssayError(f"Slurm does not take job {job_spec.number}: {error}") from error
        return str(self._jobs[-1].job_id)

    def _ask(self) -> None:
        """Find out now and then which jobs the scheduler still has."""
        now = time.monotonic()
        if now - self._asked < _ASK_EVERY["local" if self._queue.is_local else "slurm"]:
            return
        states = self._queue.states([submitted.job_id for submitted in self._running.values()])
        self._asked = time.monotonic()
        if states is None:
            return
        for submitted in self._running.values():
            submitted.state = states.get(submitted.job_id, "")
            submitted.gone = (submitted.gone or now) if submitted.state in OVER else None

    def _is_alive(self, job_id: str, files: Path) -> bool:
        """Whether a job of a driver before is still there, or has left its outcome."""
        return files.with_suffix(".outcome").exists() or self._queue.has(job_id)

    def _outcome(self, submitted: _Submitted) -> Outcome | None:
        with suppress(OSError, ValueError):
            return Outcome.from_json(submitted.files.with_suffix(".outcome").read_text(encoding="utf-8"))
        if submitted.gone is None or (
            not self._queue.is_local
            and time.monotonic() - submitted.gone < _LATE
            and not submitted.signal_sent
        ):
            return None
        state = submitted.state.lower().replace("_", " ") or "gone"
        cause: Cause = "out_of_memory" if submitted.state == "OUT_OF_MEMORY" else "killed"
        reason = f"its Slurm job {submitted.job_id} is {state}; see {self._log_of(submitted.job_id)}"
        seconds = time.monotonic() - submitted.start
        return outcome_of_lost(submitted.job_spec, seconds, submitted.signal_sent, cause, reason)

    def _noted(self, pattern: str) -> dict[str, str]:
        """Attempts that a driver before has queued, and their job ids; the files may be anybody's."""
        contents = {path.stem: path.read_text("ascii", "replace") for path in self._folder.glob(pattern)}
        return {
            name: job_id
            for name, job_id in contents.items()
            if _ATTEMPT.fullmatch(name) and _JOB_ID.fullmatch(job_id)
        }

    def _log_of(self, job_id: str) -> Path:
        name = f"{job_id}_0_log.err"
        return next(self._folder.glob(f"*/{name}"), self._folder / name)

    def _forget(self, files: Path) -> None:
        for suffix in (".job", ".running", ".outcome"):
            files.with_suffix(suffix).unlink(missing_ok=True)


def _executor(folder: Path, cluster: str | None, max_num_timeout: int) -> Any:
    try:
        import submitit
    except ImportError as error:
        raise ConfigError(
            "submitit is not installed",
            key="hydra/launcher",
            hint=install("hydra.launcher.slurm", "submitit"),
        ) from error
    try:
        return submitit.AutoExecutor(folder, cluster=cluster, slurm_max_num_timeout=max_num_timeout)
    except RuntimeError as error:
        raise ConfigError(
            "there is no Slurm here: srun is not found",
            key="hydra.launcher.cluster",
            hint="hydra.launcher.cluster=local, or hydra/launcher=local",
        ) from error
