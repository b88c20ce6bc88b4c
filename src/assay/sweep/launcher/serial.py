"""Jobs in this very process, one after another: for a debugger, and where processes cannot be started."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING, final

from assay.sweep.launcher.launcher import Ended, Pool
from assay.sweep.stop_request import handled_by

if TYPE_CHECKING:
    from types import FrameType

    from assay.sweep.job_spec import Task


@final
class SerialPool(Pool):
    """Runs each task here, to its end, when it is started.

    Nothing protects the sweep from what a job does to its process, a memory limit is not kept, and a job that
    hangs hangs the sweep.
    """

    slots = 1

    def __init__(self) -> None:
        self._ended: list[Ended] = []

    @property
    def has_gpus(self) -> bool:
        """Whether there are GPUs, which `device=auto` then takes."""
        import torch

        return torch.cuda.is_available()

    def has_room(self, task: Task) -> bool:
        """Always: whatever was started has ended.

        Args:
            task: The next one.
        """
        del task
        return not self._ended

    def start(self, task: Task) -> None:
        """Run a task.

        Args:
            task: The attempt.
        """
        from assay.sweep.worker.run_job import run_here

        came: list[int] = []

        def end(number: int, frame: FrameType | None) -> None:
            came.append(number)
            signal.default_int_handler(number, frame)

        # The handlers of a sweep only note a signal, which a job that runs here would never hear of.
        with handled_by(end):
            outcome = run_here(task)
        self._ended.append(Ended(task.number, outcome))
        if outcome.state == "interrupted":  # the signal was meant for the sweep, too
            by_hand = "SIGTERM" not in outcome.reason
            signal.raise_signal(came[0] if came else signal.SIGINT if by_hand else signal.SIGTERM)

    def wait(self, seconds: float) -> list[Ended]:
        """What has ended.

        Args:
            seconds: Not waited.
        """
        del seconds
        ended, self._ended = self._ended, []
        return ended

    def stop(self, number: int, *, now: bool) -> None:
        """Nothing runs.

        Args:
            number: Of a job.
            now: At once.
        """

    def close(self) -> None:
        """Nothing runs."""
