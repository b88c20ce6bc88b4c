"""Writes files while training goes on, in order, and leaves out what is replaced within a second."""

from __future__ import annotations

import time
from dataclasses import dataclass
from threading import Condition, Thread
from typing import TYPE_CHECKING, final

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable
    from pathlib import Path

_PAUSE = 1.0
"""Seconds between two writes of a file: a process that is killed loses as much more of its training."""


@final
@dataclass(frozen=True)
class _Step:
    work: Callable[[], None]
    moment: Hashable
    path: Path | None
    """What it replaces, and a later step may replace in its place; None: it has to be done."""


@final
class BackgroundWriter:
    """Does steps one after the other in a thread, which ends when nothing is left to do.

    A file that was written before is written again after a pause only. Of several versions that come in
    between, the last is written, so that short epochs are not held up by checkpoints that nobody will read.
    The files of one moment (the best and the last checkpoint of a step) go together: no version is left
    out before all files of a later moment are known.
    """

    def __init__(self) -> None:
        self._changed = Condition()
        self._steps: list[_Step] = []
        self._written: set[Path] = set()
        self._thread: Thread | None = None
        self._at_once = False
        self._busy = False
        self._moment: Hashable = None
        self._begun: Hashable = None
        self._last = 0.0

    def put(
        self, work: Callable[[], None], path: Path, moment: Hashable = None, *, may_wait: bool = False
    ) -> None:
        """Have something done after what was put before.

        Args:
            work: Raises nothing.
            path: The file that it writes or removes.
            moment: Equal for all files that are saved at the same time; None: as the last one.
            may_wait: It writes the whole file, and need not be done if a later step writes it again.
        """
        with self._changed:
            if moment not in (None, self._moment):
                self._leave_out()
                self._moment = moment
            replaces = may_wait and path in self._written
            self._steps.append(_Step(work, self._moment, path if replaces else None))
            (self._written.add if may_wait else self._written.discard)(path)
            if not replaces or self._moment == self._begun:
                self._at_once = True
            if self._thread is None:
                self._thread = Thread(target=self._run, name="checkpoint")
                self._thread.start()
            self._changed.notify_all()

    def wait(self) -> None:
        """Return when all is done; what waits is done now."""
        with self._changed:
            self._at_once = True
            self._changed.notify_all()
            self._changed.wait_for(lambda: not self._steps and not self._busy)

    def _leave_out(self) -> None:
        """Drop what a later step replaces, with none in between that has to be done."""
        kept: list[_Step] = []
        later: set[Path] = set()
        for step in reversed(self._steps):
            if step.path is None:
                later.clear()
            elif step.path in later:
                continue
            else:
                later.add(step.path)
            kept.append(step)
        self._steps = kept[::-1]

    def _run(self) -> None:
        while True:
            with self._changed:
                if not self._steps:
                    self._at_once, self._thread = False, None
                    return
                while not self._at_once and (left := self._last + _PAUSE - time.monotonic()) > 0:
                    self._changed.wait(left)
                self._at_once = True  # until nothing is left
                step = self._steps.pop(0)
                self._busy, self._begun = True, step.moment
            step.work()
            del step  # its memory is free once it is written
            with self._changed:
                self._busy, self._last = False, time.monotonic()
                self._changed.notify_all()
