"""Jobs in this very process, one after another: for a debugger, and where processes cannot be started."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING, final

from typing_extensions import override

from assay.process import handle_signals
from assay_sweep.launcher.launcher import Launcher

if TYPE_CHECKING:
    from types import FrameType

    from assay.record.run_record import Outcome
    from assay_sweep.job_spec import JobSpec


@final
class SerialLauncher(Launcher):
    """Runs each job here, to its end, when it is started.

    Nothing protects the sweep from what a job does to its process, a memory limit is not kept, and a job that
    hangs hangs the sweep.
    """

    slots = 1

    def __init__(self) -> None:
        self._ended: dict[int, Outcome] = {}

    @property
    @override
    def has_gpus(self) -> bool:
        import torch

        return torch.cuda.is_available()

    @override
    def has_room(self, job_spec: JobSpec) -> bool:
        del job_spec
        return not self._ended

    @override
    def start(self, job_spec: JobSpec) -> None:
        from assay_sweep.worker.run_job import run_here

        received: list[int] = []

        def end(number: int, frame: FrameType | None) -> None:
            received.append(number)
            signal.default_int_handler(number, frame)

        # The handlers of a sweep only note a signal, which a job that runs here would never hear of.
        with handle_signals(end):
            outcome = run_here(job_spec)
        self._ended[job_spec.number] = outcome
        if outcome.status == "interrupted":  # the signal was meant for the sweep, too
            signal.raise_signal(
                received[0] if received else signal.Signals[outcome.signal or "SIGINT"]
            )

    @override
    def wait(self, seconds: float) -> dict[int, Outcome]:
        del seconds
        ended = self._ended
        self._ended = {}
        return ended

    @override
    def stop(self, number: int, *, now: bool) -> None:
        """Nothing runs."""

    @override
    def close(self) -> None:
        """Nothing runs."""
