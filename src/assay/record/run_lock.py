"""Who writes a run: a lock that a process holds as long as it lives, and that nobody has to clear up."""

from __future__ import annotations

import importlib
import os
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final

from assay.errors import AssayError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

FILE: Final = "log.txt"
_PATIENCE: Final = 6.0
"""Seconds: what loads data for a process that was killed looks every five whether it is still there."""
_held: set[int] = set()
fcntl: Any = None if os.name == "nt" else importlib.import_module("fcntl")  # Windows has no such locks


@contextmanager
def writing(run_dir: Path, *, shared: bool = False) -> Iterator[None]:
    """Be the one that writes a run, until the block is left or this process dies.

    Args:
        run_dir: The run directory; its log is what is locked.
        shared: Join the process that has started this one, as the ranks of a distributed job do.

    Raises:
        AssayError: Another process is writing it.
    """
    if fcntl is None:
        yield
        return
    descriptor = os.open(run_dir / FILE, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
    _held.add(descriptor)
    try:
        if not shared and not _alone(descriptor):
            raise AssayError(
                f"{run_dir} is still being written by another process",
                hint="wait until it has ended, or stop it first",
            )
        with suppress(OSError):  # a file system without locks; then nobody can be kept out
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        yield
    finally:
        _held.discard(descriptor)
        os.close(descriptor)


def is_written(run_dir: Path) -> bool:
    """Whether a live process writes this run; says nothing about other machines without shared locks.

    Args:
        run_dir: The run directory.
    """
    if fcntl is None or not (run_dir / FILE).is_file():
        return False
    descriptor = os.open(run_dir / FILE, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return False


def _alone(descriptor: int) -> bool:
    deadline = time.monotonic() + _PATIENCE
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= deadline:
                return False
            time.sleep(0.1)
        except OSError:
            return True
        else:
            return True


def _let_go() -> None:
    """A forked process, such as one that loads data, must not keep the lock of a parent that is gone."""
    for descriptor in _held:
        with suppress(OSError):
            os.close(descriptor)
    _held.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_let_go)
