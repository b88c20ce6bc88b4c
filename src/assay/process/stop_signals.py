"""The signals that tell a run or a sweep to stop, and handlers for them."""

from __future__ import annotations

import signal
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from contextlib import AbstractContextManager
    from types import FrameType

    Handler = Callable[[int, FrameType | None], Any] | signal.Handlers

STOP_SIGNALS: Final = tuple(
    signal.Signals[name]
    for name in ("SIGINT", "SIGTERM", "SIGUSR1", "SIGHUP")
    if name in signal.Signals.__members__
)
"""SIGUSR1 is how a cluster warns; SIGHUP comes as a terminal is closed."""


@final
class Stopped(KeyboardInterrupt):
    """Another signal than Ctrl-C, to be treated as that is."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name


def stopped_by_signals() -> AbstractContextManager[object]:
    """Raise `Stopped` in this block where a signal would end the process, so that temporary files go."""
    return handled_by(_raise_stopped, [number for number in STOP_SIGNALS if number.name != "SIGINT"])


def _raise_stopped(number: int, frame: FrameType | None) -> None:
    del frame
    raise Stopped(signal.Signals(number).name)


@contextmanager
def handlers_kept(numbers: Sequence[signal.Signals] = STOP_SIGNALS) -> Iterator[list[signal.Signals]]:
    """Give signals back the handlers that they have now, when this block is left."""
    before: dict[signal.Signals, Any] = {}
    if threading.current_thread() is threading.main_thread():
        handlers = {number: signal.getsignal(number) for number in numbers}
        before = {
            number: handler
            for number, handler in handlers.items()
            if number.name != "SIGHUP" or handler != signal.SIG_IGN
        }
    try:
        yield list(before)
    finally:
        for number, handler in before.items():
            # None is a handler that was not set from Python.
            signal.signal(number, signal.SIG_DFL if handler is None else handler)


@contextmanager
def handled_by(
    handler: Handler, numbers: Sequence[signal.Signals] = STOP_SIGNALS
) -> Iterator[list[signal.Signals]]:
    """Have a handler for signals in this block, where they may be handled."""
    with handlers_kept(numbers) as handled:
        for number in handled:
            signal.signal(number, handler)
        yield handled
