"""Signals that end this process, and the memory and cores that its control groups leave it."""

from __future__ import annotations

import functools
import signal
import threading
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from contextlib import AbstractContextManager
    from types import FrameType

    Handler = Callable[[int, FrameType | None], Any] | signal.Handlers


COLLECT = (10_000, 20, 20)
"""Thresholds of the garbage collector: a job begins with hundreds of thousands of objects that stay."""


@contextmanager
def collect_signals() -> Iterator[list[signal.Signals]]:
    """Signals as they come, which nothing else is done for here; none off the main thread."""
    signals: list[signal.Signals] = []
    with handle_signals(lambda number, _: signals.append(signal.Signals(number))):
        yield signals


STOP_SIGNALS = tuple(
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


def raise_on_signals() -> AbstractContextManager[object]:
    """Raise `Stopped` in this block where a signal would end the process, so that temporary files go."""
    return handle_signals(
        _raise_stopped, [number for number in STOP_SIGNALS if number.name != "SIGINT"]
    )


def _raise_stopped(number: int, frame: FrameType | None) -> None:
    del frame
    raise Stopped(signal.Signals(number).name)


@contextmanager
def keep_handlers(
    numbers: Sequence[signal.Signals] = STOP_SIGNALS,
) -> Iterator[list[signal.Signals]]:
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
def handle_signals(
    handler: Handler, numbers: Sequence[signal.Signals] = STOP_SIGNALS
) -> Iterator[list[signal.Signals]]:
    """Have a handler for signals in this block, where they may be handled."""
    with keep_handlers(numbers) as handled:
        for number in handled:
            signal.signal(number, handler)
        yield handled


CGROUPS = Path("/sys/fs/cgroup")
_MEMORY = (
    ("memory.max", "memory.current"),
    ("memory.limit_in_bytes", "memory.usage_in_bytes"),
)
"""Files of a group's limit and of what it takes, by the version of control groups."""


def memory_limits(
    cgroups: Path = CGROUPS, proc: Path = Path("/proc")
) -> Iterator[tuple[int, int]]:
    """Bytes that each group of this process may take, and has taken."""
    for folder in control_groups(cgroups, proc):
        for names in _MEMORY:
            with suppress(OSError, ValueError):  # without a limit it says max
                limit, used = (int((folder / name).read_text(encoding="ascii")) for name in names)
                yield limit, used


def cpu_quotas(cgroups: Path = CGROUPS, proc: Path = Path("/proc")) -> Iterator[float]:
    """Cores whose time each group of this process may take."""
    for folder in control_groups(cgroups, proc, "cpu"):
        with suppress(OSError, ValueError):  # without a limit it says max
            quota, period = map(int, (folder / "cpu.max").read_text(encoding="ascii").split())
            yield quota / period
        with suppress(OSError, ValueError):  # version 1 says -1 without one
            quota, period = (
                int((folder / f"cpu.cfs_{name}_us").read_text(encoding="ascii"))
                for name in ("quota", "period")
            )
            if quota > 0:
                yield quota / period


@functools.cache
def control_groups(cgroups: Path, proc: Path, controller: str = "memory") -> list[Path]:
    """This process's group of a controller and those around it; a container may see it as the root."""
    folders: list[Path] = []
    with suppress(OSError):
        for line in (proc / "self" / "cgroup").read_text(encoding="utf-8").splitlines():
            _, controllers, path = line.split(":", 2)
            # version 1 has a tree for each
            root = cgroups / controller if controllers else cgroups
            if not controllers or controller in controllers.split(","):
                folder = root / path.strip("/")
                folders += [folder, *folder.parents[: len(folder.parts) - len(root.parts)]]
    return [*folders, cgroups, cgroups / controller]
