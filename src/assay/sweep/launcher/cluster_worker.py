"""One job at a time in a process of its own, on whatever machine a cluster has given a place."""

from __future__ import annotations

import os
import uuid
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Final, final

from assay.build.trainer.num_processes import WORLD_SIZES
from assay.process import orphans
from assay.record.outcome import Outcome, reason_of
from assay.sweep.job_spec import JobSpec
from assay.sweep.worker.exit_status import outcome_after
from assay.sweep.worker.fork_client import MARK, ForkServer

if TYPE_CHECKING:
    from collections.abc import Mapping

_OF_LAUNCHERS: Final = (*WORLD_SIZES, "SLURM_NTASKS_PER_NODE", "SLURM_PROCID", "SLURM_LOCALID")
"""By these a job would take itself for one rank of several, as in an allocation in which a cluster runs."""
_VISIBLE: Final = "CUDA_VISIBLE_DEVICES"
_LOOK_EVERY: Final = 0.2


@final
class ClusterWorker:
    """Runs jobs one after another, each forked from a fork server of this process.

    A job is thus what it is in a local sweep: its death, its memory limit and its descendants are its own.
    Should this process be killed, and its fork server with it, the jobs save; what then goes on is killed.
    """

    def __init__(self) -> None:
        os.environ[orphans.MARK] = uuid.uuid4().hex
        self._fork_server = ForkServer()
        self._guard = orphans.guard(os.environ[orphans.MARK])
        self._told: dict[int, str] = {}

    def ready(self) -> bool:
        """Tells that there is a place for this process."""
        return True

    def run(self, key: int, job_spec: str, environment: dict[str, str] | None = None) -> str:
        """Run a job to its end; never raises.

        Args:
            key: By which `stop` knows it; each is used once.
            job_spec: As JSON.
            environment: Variables that it gets in place of this process's; the GPUs leased to it stay.

        Returns:
            The outcome as JSON.
        """
        try:
            ready = JobSpec.from_json(job_spec)
            changes: dict[str, str | None] = dict.fromkeys(_OF_LAUNCHERS)
            if environment is not None:
                changes |= _instead(environment, ready)
            ready = replace(ready, environment=changes | ready.environment)
            return self._run(key, ready).to_json()
        except Exception as error:  # whatever it is, the launcher waits for an answer
            return Outcome("failed", "machine", reason_of(error)).to_json()
        finally:
            self._told.pop(key, None)

    def stop(self, key: int, *, now: bool) -> None:
        """Ask a job to save and end, or end it at once; may be called by another thread, and before `run`.

        Args:
            key: Of the job.
            now: At once.
        """
        self._told[key] = "SIGKILL" if now else self._told.get(key, "SIGTERM")

    def close(self) -> None:
        """End what runs and the fork server."""
        self._fork_server.close()
        with suppress(OSError):
            self._guard.close()

    def _run(self, key: int, job_spec: JobSpec) -> Outcome:
        child = self._fork_server.start(job_spec)
        sent = ""
        while True:
            for exit_status in self._fork_server.wait((child,), _LOOK_EVERY).values():
                return outcome_after(job_spec, exit_status, signal_sent=sent)
            wanted = self._told.get(key, "")
            if wanted != sent:
                self._fork_server.stop(child, now=wanted == "SIGKILL")
                sent = wanted


def _instead(environment: Mapping[str, str], job_spec: JobSpec) -> dict[str, str | None]:
    """What turns the variables of this process into others."""
    kept = {orphans.MARK, MARK} | ({_VISIBLE} if job_spec.gpus else set())
    wanted = {name: value for name, value in environment.items() if name not in kept}
    return {**{name: None for name in os.environ if name not in wanted and name not in kept}, **wanted}
