"""Processes that this one starts, which end with it; and the memory that control groups leave it."""

from __future__ import annotations

import ctypes
import functools
import math
import os
import re
import signal
import subprocess
import sys
import threading
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

import psutil

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager
    from types import FrameType

    Handler = Callable[[int, FrameType | None], Any] | signal.Handlers


COLLECT = (10_000, 20, 20)
"""Thresholds of the garbage collector: a job begins with hundreds of thousands of objects that stay."""
_PARENT = "ASSAY_PARENT"
_GRACE = 10.0
"""Seconds that processes have to end when one has died, or once a second signal has come."""
_LOOK_EVERY = 1.0
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_PATIENT = 2
"""How often Ctrl-C asks, before the processes are killed."""


def start(command: Sequence[str], environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
    """Start a process that calls `end_with_parent` first of all."""
    own = {_PARENT: str(os.getpid())}
    # A session of its own: Ctrl-C reaches it through this process, and once.
    return subprocess.Popen(command, env={**environment, **own}, start_new_session=True)  # noqa: S603 - the caller's own


def end_with_parent() -> None:
    """Have this process killed when the one that has started it dies, however."""
    parent = os.environ.pop(_PARENT, "")
    if parent.isdecimal():
        end_with(int(parent), signal.SIGKILL)


def run_children(
    children: Iterable[tuple[Sequence[str], Mapping[str, str]]],
    on_failure: Callable[[int, int], None] = lambda *_: None,
) -> tuple[list[int], str]:
    """Run commands at once, each in its environment; their exit codes, and the first signal that came.

    The number and the exit code of the first one that fails are told at once.
    """
    processes: list[subprocess.Popen[bytes]] = []
    with collect_signals() as signals:
        try:
            processes.extend(start(*child) for child in children)
            codes = wait(processes, signals, on_failure)
        finally:
            for process in processes:
                kill(process)
    return codes, signals[0].name if signals else ""


@contextmanager
def collect_signals() -> Iterator[list[signal.Signals]]:
    """Signals as they come, which nothing else is done for here; none off the main thread."""
    signals: list[signal.Signals] = []
    with handle_signals(lambda number, _: signals.append(signal.Signals(number))):
        yield signals


def wait(
    children: Sequence[subprocess.Popen[bytes]],
    signals: Sequence[signal.Signals],
    on_failure: Callable[[int, int], None] = lambda *_: None,
) -> list[int]:
    """Wait for processes; signals are passed on.

    After the second one they have ten seconds, for they may wait for each other; the third Ctrl-C kills them.
    """
    passed = 0
    deadline = math.inf
    told = False
    while None in [process.poll() for process in children]:
        for number in signals[passed:]:
            passed += 1
            last = signals[:passed].count(signal.SIGINT) > _PATIENT
            for process in children:
                kill(process) if last else process.send_signal(number)
            if passed == _PATIENT:
                deadline = min(deadline, time.monotonic() + _GRACE)
        failed = [number for number, process in enumerate(children) if process.returncode]
        if failed and not told:
            told = True
            on_failure(failed[0], children[failed[0]].returncode)
            # One that a signal has ended takes none yet, and so has not begun what the others wait for.
            waiting = not any(
                process.returncode == -number for process in children for number in signals
            )
            deadline = min(deadline, time.monotonic() + (_GRACE if waiting else 0.0))
            for process in children:
                process.terminate()
        if time.monotonic() > deadline:
            for process in children:
                kill(process)
        time.sleep(0.05)
    return [process.returncode for process in children]


def kill(process: subprocess.Popen[bytes]) -> None:
    """End a process at once, with what loads data for it; nothing where it has ended."""
    if process.poll() is None:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def end_with(parent: int, number: signal.Signals) -> None:
    """Have this process get a signal when its parent dies; called as soon as it runs."""
    if sys.platform == "linux":
        _prctl(_PR_SET_PDEATHSIG, number)
    else:
        threading.Thread(target=_watch, args=(parent, number), daemon=True, name="parent").start()
    if os.getppid() != parent:  # it died before that
        os._exit(1)


def adopt_orphans() -> None:
    """Become the parent of whatever descendant loses its own, so that none is out of reach; Linux only."""
    if sys.platform == "linux":
        _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def child_pids() -> list[int]:
    """Process ids of the children of this process."""
    return [child.pid for child in psutil.Process().children()]


def kill_process(pid: int) -> None:
    """End a process at once, with its group where it leads one; nothing where it is gone."""
    for send in (os.killpg, os.kill):
        with suppress(ProcessLookupError, PermissionError):
            send(pid, signal.SIGKILL)


def _prctl(option: int, value: int) -> None:
    libc: Any = ctypes.CDLL(None, use_errno=True)
    libc.prctl(option, ctypes.c_ulong(value), 0, 0, 0)


def _watch(parent: int, number: signal.Signals) -> None:
    while os.getppid() == parent:
        time.sleep(_LOOK_EVERY)
    os.kill(os.getpid(), number)


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


_COUNT = re.compile(r"^oom_kill (\d+)$", re.MULTILINE)
_CGROUPS = Path("/sys/fs/cgroup")


def count_oom_kills(cgroups: Path = _CGROUPS, proc: Path = Path("/proc")) -> int:
    """Processes killed so far: those of this process's control group, or of the whole machine without one."""
    for path in (
        *(folder / "memory.events" for folder in _groups(cgroups, proc)),
        proc / "vmstat",
    ):
        try:
            match = _COUNT.search(path.read_text(encoding="utf-8"))
        except OSError:
            continue
        if match:
            return int(match[1])
    return 0


def memory_limits(
    cgroups: Path = _CGROUPS, proc: Path = Path("/proc")
) -> Iterator[tuple[int, int]]:
    """Bytes that each group of this process may take, and has taken."""
    for folder in _groups(cgroups, proc):
        with suppress(OSError, ValueError):  # without a limit it says max
            limit, used = (
                int((folder / name).read_text(encoding="ascii"))
                for name in ("memory.max", "memory.current")
            )
            yield limit, used


@functools.cache
def _groups(cgroups: Path, proc: Path) -> list[Path]:
    """This process's group and those around it (version 2); a container may see it as the root."""
    folders: list[Path] = []
    with suppress(OSError):
        for line in (proc / "self" / "cgroup").read_text(encoding="utf-8").splitlines():
            if line.startswith("0::"):
                folder = cgroups / line.removeprefix("0::").strip("/")
                folders += [folder, *folder.parents[: len(folder.parts) - len(cgroups.parts)]]
    return [*folders, cgroups]
