"""The loop of a sweep: it starts jobs, records how they end, and decides what follows."""

from __future__ import annotations

import shlex
import time
from collections import deque
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

from assay.assemble.trainer_options import num_devices, num_processes
from assay.errors import AssayError, ProcessError, first_line, write_failure
from assay.record.run_record import FILE as RECORD
from assay.record.run_record import Outcome, reason_of
from assay_analysis.journal import JobRecord
from assay_analysis.objective import scores_of
from assay_sweep.job_spec import JobSpec, to_text
from assay_sweep.reuse import KnownRuns

if TYPE_CHECKING:
    import signal
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from assay.check.report import Report
    from assay.compose.compose import Job
    from assay_analysis.journal import Journal
    from assay_sweep.definition import SweepDefinition
    from assay_sweep.launcher.launcher import Launcher
    from assay_sweep.search.search import Proposal
    from assay_sweep.summary import SweepProgress


_TICK = 0.25
"""Seconds between two looks at signals and at what running jobs have written."""


@final
class Scheduler:
    """Runs the jobs of a sweep to their ends."""

    def __init__(
        self,
        sweep: SweepDefinition,
        journal: Journal,
        launcher: Launcher,
        *,
        check: Callable[[Job], Report],
        watcher: SweepProgress,
        signals: Sequence[signal.Signals],
    ) -> None:
        self._search = sweep.search
        self._policy = sweep.policy
        self._objectives = sweep.objectives
        self._journal = journal
        self._launcher = launcher
        self._compose = sweep.composer.job
        self._check = check
        self._watcher = watcher
        self._signals = signals
        self._deadline = sweep.deadline
        self._no_room = ""  # what a job could not write, and where
        self._signal_sent = ""  # to the running jobs
        self._directory = journal.path.parent
        self._pending: deque[tuple[JobRecord, Job]] = deque()
        self._held: tuple[JobRecord, Job, JobSpec] | None = None
        self._running: dict[int, Job] = {}
        self._specs: dict[str, dict[str, Any]] = {}
        self._halted = False
        # for another sweep that trains the same
        self._waiting: list[tuple[JobRecord, Job, JobSpec]] = []
        self._known = KnownRuns(self._directory, reuse=sweep.reuse)

    def queue(self, job_record: JobRecord, job: Job, report: Report) -> None:
        """Have a job of the journal run before new ones are asked for."""
        self._specs[job.fingerprint] = _reusable_spec(report)
        self._pending.append((job_record, job))

    def run(self) -> None:
        """Run until no job is left, or a signal stops the sweep."""
        try:
            while True:
                self._fill()
                self._stop_running()
                if not self._running:
                    if not self._waiting or self._halted or self._stop_reason:
                        break
                    time.sleep(_TICK)
                for number, outcome in self._launcher.wait(_TICK).items():
                    self._settle(number, outcome)
                self._watcher.refresh(self._journal.jobs, self._search.total)
        finally:
            self._launcher.close()
            self._known.close()
        if self._no_room:
            raise AssayError(
                f"the sweep has stopped, as it cannot write: {self._no_room}",
                hint=f"assay resume {shlex.quote(str(self._directory))}, once it can",
            )

    # -- starting ----------------------------------------------------------------------------------------

    def _fill(self) -> None:
        while not (self._halted or self._stop_reason):
            held = self._held or self._stop_waiting() or self._next()
            self._held = None
            if held is None:
                return
            job_record, job, job_spec = held
            with self._failing_alone(job_record):
                if not self._launcher.has_room(job_spec):
                    self._held = held
                    return
                if self._known.claim(job_spec, job.fingerprint):
                    self._start(job_record, job, job_spec)
                else:
                    self._waiting.append(held)
                    message = f"job {job_record.number} waits: another sweep trains the same job"
                    self._watcher.print_message(message)

    def _stop_waiting(self) -> tuple[JobRecord, Job, JobSpec] | None:
        """Take a job that another sweep has trained meanwhile, or has given up."""
        for place, (_, job, job_spec) in enumerate(self._waiting):
            if self._known.reclaim(job_spec, job.fingerprint):
                return self._waiting.pop(place)
        return None

    def _start(self, job_record: JobRecord, job: Job, job_spec: JobSpec) -> None:
        (self._directory / "logs").mkdir(exist_ok=True)
        job_spec = replace(
            job_spec,
            resume=(Path(job_spec.run_dir) / RECORD).is_file(),
            finished=self._known.find(job_spec, job.fingerprint),
        )
        self._journal.start(job_record.number, job_spec.attempt)
        job_record = self._journal.jobs[job_record.number]
        epochs = (job.config.get("trainer") or {}).get("max_epochs")
        self._watcher.show_start(job_record, Path(job_spec.run_dir), epochs)
        self._launcher.start(job_spec)
        self._running[job_record.number] = job

    def _next(self) -> tuple[JobRecord, Job, JobSpec] | None:
        while not self._halted:
            if self._pending:
                composed: tuple[JobRecord, Job] | None = self._pending.popleft()
            elif (proposal := self._search.next()) is None:
                break
            else:
                composed = self._new(proposal)
            if composed is not None:
                with self._failing_alone(composed[0]):
                    return *composed, self._job_spec(*composed)
        return None

    @contextmanager
    def _failing_alone(self, job_record: JobRecord) -> Iterator[None]:
        """Let an error in this block fail this job alone."""
        try:
            yield
        except (AssayError, OSError) as error:
            if isinstance(error, ProcessError) or write_failure(error):
                raise
            number = job_record.number
            attempt = len(job_record.failures) + 1
            if self._journal.jobs[number].status != "running":
                self._journal.start(number, attempt)
            self._end(number, Outcome("failed", "exception", reason_of(error)))

    def _new(self, proposal: Proposal) -> tuple[JobRecord, Job] | None:
        """Compose and check a proposed job; return None if it cannot run."""
        number = max(self._journal.jobs, default=-1) + 1
        try:
            job = self._compose(proposal.overrides, number)
            self._specs[job.fingerprint] = _reusable_spec(self._check(job))
        except ProcessError:
            raise
        except AssayError as error:
            self._journal.add([JobRecord(number, "", proposal.overrides, proposal.token)])
            self._end(number, Outcome("failed", "exception", reason_of(error)))
            return None
        job_record = make_job_record(number, job, proposal.token)
        self._journal.add([job_record])
        return job_record, job

    def _job_spec(self, job_record: JobRecord, job: Job) -> JobSpec:
        if job.fingerprint not in self._specs:
            self._specs[job.fingerprint] = _reusable_spec(self._check(job))
        needs: dict[str, Any] = needs_of(job, has_gpus=self._launcher.has_gpus)
        return JobSpec(
            number=job_record.number,
            attempt=len(job_record.failures) + 1,
            run_dir=job.config["run_dir"],
            config=to_text(job.config),
            overrides=list(job.overrides),
            choices=job.choices,
            spec=self._specs[job.fingerprint],
            output=str((self._directory / "logs" / f"{job_record.number}.txt").absolute()),
            cwd=str(Path.cwd()),
            **needs,
            memory_gb=self._policy.memory_gb,
            timeout_min=self._policy.timeout_min,
            trial=self._search.trial(job_record.token),
        )

    # -- ending ------------------------------------------------------------------------------------------

    def _settle(self, number: int, outcome: Outcome) -> None:
        job = self._running.pop(number)
        outcome = self._unless_stopped(outcome)
        failures = len(self._journal.jobs[number].failures)
        again = outcome.status == "failed" and self._policy.should_retry(outcome, failures)
        self._end(number, outcome, again=again)
        if again:
            self._pending.append((self._journal.jobs[number], job))

    def _end(self, number: int, outcome: Outcome, *, again: bool = False) -> None:
        """Record how an attempt ended, and report it to the search and the progress display."""
        self._journal.end(number, outcome, final=not again)
        job_record = self._journal.jobs[number]
        if job_record.fingerprint:  # else it could not be composed
            self._known.release(job_record.fingerprint, outcome)
        if not again and outcome.status != "interrupted":
            self._search.tell(job_record.token, outcome, scores_of(outcome, self._objectives))
        self._watcher.show_end(job_record, outcome, again=again)
        stops = job_record.status == "failed" and self._policy.on_failure == "stop"
        if stops and not self._halted:
            self._halted = True
            self._watcher.print_message(
                f"job {number} failed, and on_failure=stop: no further job is started"
            )

    def _unless_stopped(self, outcome: Outcome) -> Outcome:
        """Turn a failure into an interruption if the sweep is stopping: the job resumes with the sweep."""
        if outcome.cause == "cannot_write":  # nor could any other job
            self._no_room = self._no_room or first_line(outcome.reason)
        if self._stop_reason:
            if outcome.status != "failed":
                return outcome
            return Outcome("interrupted", reason=outcome.reason, seconds=outcome.seconds)
        if outcome.status == "interrupted":  # another process stopped this job alone
            return replace(outcome, status="failed", cause="killed")
        return outcome

    # -- stopping ----------------------------------------------------------------------------------------

    @property
    def _stop_reason(self) -> str:
        """Why no further job is started, and the running ones are to end; empty as long as all goes on."""
        if self._signals:
            return self._signals[0].name
        if not self._no_room and time.monotonic() > self._deadline:
            return "the time limit was reached"
        return self._no_room

    def _stop_running(self) -> None:
        """Have the running jobs save and end on the first signal to stop, and end at once on the second."""
        why = self._stop_reason
        wanted_signal = ""
        if len(self._signals) > 1:
            wanted_signal = "SIGKILL"
        elif why:
            wanted_signal = "SIGTERM"
        if wanted_signal == self._signal_sent:
            return
        if not self._signal_sent and wanted_signal == "SIGTERM" and self._running:
            self._watcher.print_message(
                f"{why}: the running jobs stop after their step (Ctrl-C: at once)"
            )
        self._signal_sent = wanted_signal
        for number in self._running:
            self._launcher.stop(number, now=wanted_signal == "SIGKILL")


def make_job_record(number: int, job: Job, token: str) -> JobRecord:
    """Make the journal's record of a new job."""
    return JobRecord(
        number, job.fingerprint, job.overrides, token, int(job.config.get("seed") or 0)
    )


def needs_of(job: Job, *, has_gpus: bool) -> dict[str, int]:
    """How many nodes a job runs on, and what it needs on each, as fields of a `JobSpec`."""
    trainer: dict[str, Any] = job.config.get("trainer") or {}
    return {
        "nodes": int(trainer.get("num_nodes") or 1),
        "processes": num_processes(trainer, 1),
        "gpus": num_gpus(trainer, has_gpus=has_gpus),
    }


def _reusable_spec(report: Report) -> dict[str, Any]:
    """The data's spec for the run to reuse; empty if the check had to read the data."""
    if report.data_read:
        return {}
    return dict(report.spec)


def num_gpus(trainer: Mapping[str, Any], *, has_gpus: bool) -> int:
    """The number of GPUs that a job needs; one if it asks for all devices."""
    accelerator = str(trainer.get("accelerator"))
    if accelerator in ("gpu", "cuda") or (accelerator == "auto" and has_gpus):
        return num_devices(trainer, 1)
    return 0
