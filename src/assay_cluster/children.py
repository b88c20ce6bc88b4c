"""Processes that this one starts, which end with it."""

from __future__ import annotations

import ctypes
import math
import os
import re
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

from assay.process import CGROUPS, collect_signals, control_groups

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence


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
        end_with(int(parent))


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


def end_with(parent: int) -> None:
    """Have this process killed when its parent dies; called as soon as it runs."""
    if sys.platform == "linux":
        _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    else:
        threading.Thread(target=_watch, args=(parent,), daemon=True, name="parent").start()
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


def _watch(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(_LOOK_EVERY)
    os.kill(os.getpid(), signal.SIGKILL)


_COUNT = re.compile(r"^oom_kill (\d+)$", re.MULTILINE)


def count_oom_kills(cgroups: Path = CGROUPS, proc: Path = Path("/proc")) -> int:
    """Processes killed so far: those of this process's control group, or of the whole machine without one."""
    events = [folder / "memory.events" for folder in control_groups(cgroups, proc)]
    for path in (*events, proc / "vmstat"):
        with suppress(OSError):
            if match := _COUNT.search(path.read_text(encoding="utf-8")):
                return int(match[1])
    return 0


def signal_name(number: int) -> str:
    """Name of a signal."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
