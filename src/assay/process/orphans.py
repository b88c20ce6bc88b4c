"""Processes whose parent is gone: who ends with it, who takes them in, who ends what is left behind."""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from typing import IO, Any, Final

import psutil

_PR_SET_PDEATHSIG: Final = 1
_PR_SET_CHILD_SUBREAPER: Final = 36
_LOOK_EVERY: Final = 1.0


def end_with(parent: int, number: signal.Signals = signal.SIGTERM) -> None:
    """Have this process told to stop when its parent dies; called as soon as it runs."""
    if sys.platform == "linux":
        _prctl(_PR_SET_PDEATHSIG, number)
    else:
        threading.Thread(target=_watch, args=(parent, number), daemon=True, name="parent").start()
    if os.getppid() != parent:  # it died before that
        os._exit(1)


def adopt() -> None:
    """Become the parent of whatever descendant loses its own, so that none is out of reach; Linux only."""
    if sys.platform == "linux":
        _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def children() -> list[int]:
    """Process ids of the children of this process."""
    return [child.pid for child in psutil.Process().children()]


def descendants(pid: int) -> list[int]:
    """Process ids of everything that a process has started, at whatever distance."""
    try:
        return [child.pid for child in psutil.Process(pid).children(recursive=True)]
    except psutil.Error:
        return []


def mark_of(pid: int, name: str) -> str:
    """Value of an environment variable with which a process was started; empty where it is not known."""
    try:
        return psutil.Process(pid).environ().get(name, "")
    except (psutil.Error, OSError):
        return ""


def kill(pid: int) -> None:
    """End a process at once, with its group where it leads one; nothing where it is gone."""
    for send in (os.killpg, os.kill):
        try:
            send(pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            continue


def kill_marked(name: str, value: str, patience: float = 5.0) -> None:
    """End every process that was started with a variable of this value, and wait until they are gone."""
    deadline = time.monotonic() + patience
    killed: set[int] = set()
    while time.monotonic() < deadline:
        alive = [pid for pid in psutil.pids() if pid != os.getpid() and mark_of(pid, name) == value]
        for pid in alive:
            kill(pid)
        killed.update(alive)
        if not alive and all(map(_is_gone, killed)):  # one that is dying has lost its variables first
            return
        time.sleep(0.01)


def outlive(name: str, value: str, grace: float) -> None:
    """Wait until every process started with a variable of this value is gone; end those that stay."""
    deadline = time.monotonic() + grace
    while any(pid != os.getpid() and mark_of(pid, name) == value for pid in psutil.pids()):
        if time.monotonic() > deadline:
            kill_marked(name, value)
            return
        time.sleep(_LOOK_EVERY / 2)


def _is_gone(pid: int) -> bool:
    """Whether a process has ended; in a container there may be nobody to take note of its end."""
    try:
        return bool(psutil.Process(pid).status() == psutil.STATUS_ZOMBIE)
    except psutil.Error:
        return True


def _prctl(option: int, value: int) -> None:
    libc: Any = ctypes.CDLL(None, use_errno=True)
    libc.prctl(option, ctypes.c_ulong(value), 0, 0, 0)


def _watch(parent: int, number: signal.Signals) -> None:
    while os.getppid() == parent:
        time.sleep(_LOOK_EVERY)
    os.kill(os.getpid(), number)


MARK: Final = "ASSAY_CLUSTER_WORKER"
"""Variable by which everything that a process has started is found when it is gone."""
_GRACE: Final = 15.0
"""Seconds that it has to save and end by itself: a fork server's, and some."""


def guard(mark: str, folder: str = "") -> IO[bytes]:
    """Have whatever is started with a mark end, at the latest seconds after this process."""
    process = subprocess.Popen(  # noqa: S603 - our own interpreter
        [sys.executable, "-P", "-m", "assay.process.orphans", mark, folder],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    threading.Thread(target=process.wait, daemon=True).start()  # its first half ends at once
    assert process.stdin is not None  # noqa: S101 - a pipe was asked for
    return process.stdin


def main() -> None:
    """Wait until the other process is gone, then until what it has started is; kill what stays."""
    if os.fork():
        return
    os.setsid()
    sys.stdin.buffer.read()
    mark, folder = sys.argv[1:]
    outlive(MARK, mark, _GRACE)
    if folder:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
