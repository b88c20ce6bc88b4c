"""One job at a time in a process of its own, on whatever machine a cluster has given a place."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import uuid
from contextlib import suppress
from dataclasses import replace
from typing import IO, TYPE_CHECKING, Final, final

from assay.errors import AssayError
from assay.sweep import orphans
from assay.sweep.death import outcome_after
from assay.sweep.nursery import MARK, Nursery
from assay.sweep.outcome import Outcome
from assay.sweep.task import Task

if TYPE_CHECKING:
    from collections.abc import Mapping

_MARK: Final = "ASSAY_KEEPER"
"""Variable by which everything that a keeper has started is found when it is gone."""
_VISIBLE: Final = "CUDA_VISIBLE_DEVICES"
_LOOK_EVERY: Final = 0.2
_GRACE: Final = 15.0
"""Seconds that jobs have to save when the process that keeps them is gone; their nursery's own, and some."""


@final
class Keeper:
    """Runs tasks one after another, each forked from a nursery of this process.

    A job is thus what it is in a local sweep: its death, its memory limit and its descendants are its own.
    Should this process be killed, and its nursery with it, the jobs save; what then goes on is killed.
    """

    def __init__(self) -> None:
        os.environ[_MARK] = uuid.uuid4().hex
        self._nursery = Nursery()
        self._guard = _guard(os.environ[_MARK])
        self._told: dict[int, str] = {}

    def ready(self) -> bool:
        """Tells that there is a place for this process."""
        return True

    def run(self, key: int, task: str, environment: dict[str, str] | None = None) -> str:
        """Run a task to its end; never raises.

        Args:
            key: By which `stop` knows it; each is used once.
            task: As JSON.
            environment: Variables that it gets in place of this process's; the GPUs leased to it stay.

        Returns:
            The outcome as JSON.
        """
        from assay.sweep.work import failed

        try:
            ready = Task.from_json(task)
            if environment is not None:
                ready = replace(ready, environment=_instead(environment, ready) | ready.environment)
            return self._run(key, ready).to_json()
        except (AssayError, OSError) as error:
            return Outcome("failed", "exception", failed(error).reason, transient=True).to_json()
        finally:
            self._told.pop(key, None)

    def stop(self, key: int, *, now: bool) -> None:
        """Ask a task to save and end, or end it at once; may be called by another thread, and before `run`.

        Args:
            key: Of the task.
            now: At once.
        """
        self._told[key] = "SIGKILL" if now else self._told.get(key, "SIGTERM")

    def close(self) -> None:
        """End what runs and the nursery."""
        self._nursery.close()
        with suppress(OSError):
            self._guard.close()

    def _run(self, key: int, task: Task) -> Outcome:
        child = self._nursery.start(task)
        passed_on = ""
        while True:
            for death in self._nursery.wait((child,), _LOOK_EVERY).values():
                return outcome_after(task, death, told=passed_on)
            told = self._told.get(key, "")
            if told != passed_on:
                self._nursery.stop(child, now=told == "SIGKILL")
                passed_on = told


def _instead(environment: Mapping[str, str], task: Task) -> dict[str, str | None]:
    """What turns the variables of this process into others."""
    kept = {_MARK, MARK} | ({_VISIBLE} if task.gpus else set())
    wanted = {name: value for name, value in environment.items() if name not in kept}
    return {**{name: None for name in os.environ if name not in wanted and name not in kept}, **wanted}


def _guard(mark: str) -> IO[bytes]:
    """A process that ends what this one has left behind, once it is gone; the end of a pipe tells it.

    Ray kills the children of a process that it ends: the nursery, not this grandchild.
    """
    process = subprocess.Popen(  # noqa: S603 - our own interpreter
        [sys.executable, "-P", "-m", "assay.sweep.pool.keeper", mark],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    threading.Thread(target=process.wait, daemon=True).start()  # its first half ends at once
    assert process.stdin is not None  # noqa: S101 - a pipe was asked for
    return process.stdin


def main() -> None:
    """Wait until the keeper is gone, then until its nursery and jobs are; kill those that stay."""
    if os.fork():
        return
    os.setsid()
    sys.stdin.buffer.read()
    orphans.outlive(_MARK, sys.argv[1], _GRACE)


if __name__ == "__main__":
    main()
