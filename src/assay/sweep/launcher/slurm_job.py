"""What a Slurm job does: runs one job, saves it before its place is taken, and goes on at the next place."""

from __future__ import annotations

import signal
import threading
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, final

from assay.files.atomic import write_text
from assay.process.stop_signals import handled_by
from assay.record.outcome import Outcome
from assay.record.run_record import FILE as RECORD
from assay.sweep.job_spec import JobSpec
from assay.sweep.launcher.cluster import ClusterWorker

if TYPE_CHECKING:
    from types import FrameType

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
    """A job as submitit runs it: called on the machine that Slurm has found.

    When Slurm takes the machine away (submitit's signal), the run saves and the Slurm job is queued again;
    there the run goes on. That holds, too, where Slurm kills and queues it again by itself.

    Args:
        files: Path without suffix of what this leaves for the sweep: `.running` and `.outcome`.
        job_spec: As JSON.
        seconds: Between submitit's signal and the end of the Slurm job.
    """

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
        """Save before the machine is taken away; submitit calls this in a signal's handler.

        Returns:
            What is to run at the next place; None where the job has ended.
        """
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
