"""Processes that this one starts: they are told of the signals that it gets, and end with it."""

from __future__ import annotations

import math
import os
import signal
import subprocess
import threading
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final

from assay.process.orphans import end_with

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

_SIGNALS: Final = ("SIGTERM", "SIGINT", "SIGUSR1", "SIGHUP")
_PARENT: Final = "ASSAY_PARENT"
_GRACE: Final = 10.0
"""Seconds that the others have to end when one has died."""
_PATIENT: Final = 2
"""How often Ctrl-C asks, before the processes are killed."""


def start(command: Sequence[str], environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
    """Start a process that calls `end_with_parent` first of all.

    Args:
        command: The program and its arguments.
        environment: All of its environment.
    """
    known = {**environment, _PARENT: str(os.getpid())}
    # A session of its own: Ctrl-C reaches it through this process, and once.
    return subprocess.Popen(command, env=known, start_new_session=True)  # noqa: S603 - the caller's own


def end_with_parent() -> None:
    """Have this process killed when the one that has started it dies, however."""
    parent = os.environ.pop(_PARENT, "")
    if parent.isdecimal():
        end_with(int(parent), signal.SIGKILL)


@contextmanager
def received() -> Iterator[list[signal.Signals]]:
    """Signals as they come, which nothing else is done for here; none off the main thread."""
    came: list[signal.Signals] = []
    before = {}
    if threading.current_thread() is threading.main_thread():
        for name in _SIGNALS:
            number = getattr(signal, name, None)
            if number is not None and not (name == "SIGHUP" and signal.getsignal(number) == signal.SIG_IGN):
                handler = signal.signal(number, lambda got, _: came.append(signal.Signals(got)))
                before[number] = handler if handler is not None else signal.SIG_DFL
    try:
        yield came
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def wait(children: Sequence[subprocess.Popen[bytes]], came: Sequence[signal.Signals]) -> list[int]:
    """Wait for processes; signals are passed on, and the third Ctrl-C kills them.

    Args:
        children: From `start`. When one fails, the others are told to end, and killed where they do not.
        came: From `received`.

    Returns:
        Their exit codes.
    """
    passed, deadline = 0, math.inf
    while None in [process.poll() for process in children]:
        for number in came[passed:]:
            passed += 1
            last = came[:passed].count(signal.SIGINT) > _PATIENT
            for process in children:
                kill(process) if last else process.send_signal(number)
        if deadline == math.inf and any(process.returncode for process in children):
            deadline = time.monotonic() + _GRACE
            for process in children:
                process.terminate()
        if time.monotonic() > deadline:
            for process in children:
                kill(process)
        time.sleep(0.05)
    return [process.returncode for process in children]


def kill(process: subprocess.Popen[bytes]) -> None:
    """End a process at once, with what loads data for it; nothing where it has ended.

    Args:
        process: From `start`.
    """
    if process.poll() is None:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
