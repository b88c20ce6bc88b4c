"""Signals that tell a sweep to stop: they are noted when they come, and acted on by the loop of the sweep."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING, Any, final

from assay.process.stop_signals import handled_by
from assay.record.outcome import exit_code_of

if TYPE_CHECKING:
    from contextlib import AbstractContextManager
    from types import FrameType


@final
class StopRequest:
    """Whether a sweep was told to stop.

    A handler may run between any two instructions, in the middle of a message to another process among them:
    it notes the signal and does nothing else.

    Attributes:
        name: Of the first signal; empty where there was none.
        at_once: Whether Ctrl-C was pressed again after it: running jobs are not to save first.
    """

    def __init__(self) -> None:
        self.name = ""
        self.at_once = False
        self._prepares = True

    @property
    def exit_code(self) -> int:
        """That a shell gives a process which this signal has ended; 0 without one."""
        return exit_code_of(self.name) if self.name else 0

    def watching(self) -> AbstractContextManager[Any]:
        """Note the signals in this block; nothing off the main thread, where Python takes none."""
        self._prepares = False
        return handled_by(self._note)

    def preparing(self) -> AbstractContextManager[Any]:
        """Note Ctrl-C in this block; until `watching`, `look` acts on it and a second one interrupts at once.

        An interrupt that is raised wherever the program is may be lost: Python ignores what is raised while
        it takes an object down.
        """
        return handled_by(self._note_first, (signal.SIGINT,))

    def look(self) -> None:
        """End what is being prepared, where that was asked for.

        Raises:
            KeyboardInterrupt: It was.
        """
        if self.name:
            raise KeyboardInterrupt

    def _note_first(self, number: int, frame: FrameType | None) -> None:
        if self._prepares:
            self.look()
        self._note(number, frame)

    def _note(self, number: int, frame: FrameType | None) -> None:
        del frame
        if not self.name:
            self.name = signal.Signals(number).name
        elif number == signal.SIGINT:
            self.at_once = True
