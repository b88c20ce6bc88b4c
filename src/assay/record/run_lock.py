"""Who writes a run: a lock that a process holds as long as it lives, and that nobody has to clear up."""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
from contextlib import contextmanager, nullcontext, suppress
from typing import TYPE_CHECKING

from assay.errors import AssayError, explain_write_errors
from assay.files.atomic import fcntl
from assay.files.symlinks import open_append, read_whole
from assay.terminal import printable

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

FILE = ".lock"
"""Says which processes write the run: one line each, process id and host; touched at each beat."""
_BEAT = 10.0
"""Seconds between two signs of life of the one that writes, for machines that see no lock of others."""
_MISSED = 3
"""Signs of life of a process on another machine that are waited for before its run is taken over."""
_PATIENCE = 6.0
"""Seconds: what loads data for a process that was killed looks every five whether it is still there."""
log = logging.getLogger(__name__)
_held: set[int] = set()


@contextmanager
def lock_run(run_dir: Path, *, shared: bool = False) -> Iterator[None]:
    """Be the one that writes a run, until the block is left or this process dies.

    Locked are the directory itself, whose lock goes with no file that somebody removes, and `.lock` in it,
    since a network file system tells other machines of locks on files alone.
    """
    if fcntl is None:
        yield
        return
    descriptors: list[int] = []
    try:
        _open(run_dir, descriptors)
        if not shared and not all(map(_acquire, descriptors)):
            raise lock_error(run_dir)
        if not shared:
            _await_silence(run_dir)
        line = f"{os.getpid()} {socket.gethostname()}\n"
        with suppress(OSError):  # a full disk: the lock holds all the same
            if not shared:
                os.truncate(descriptors[-1], 0)
            os.write(descriptors[-1], line.encode())
        for descriptor in descriptors:
            with suppress(OSError):  # a file system without locks; then nobody can be kept out
                fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        with nullcontext() if shared else _beating(run_dir, descriptors[-1], line):
            yield
    finally:
        for descriptor in descriptors:
            _held.discard(descriptor)
            os.close(descriptor)


def is_written(run_dir: Path) -> bool:
    """Whether a live process writes this run; says nothing about other machines without shared locks."""
    if fcntl is None:
        return False
    return any(_is_locked(path) for path in (run_dir, run_dir / FILE))


def _is_locked(path: Path) -> bool:
    try:
        # An exclusive lock on a network file system wants a file that is open for writing.
        if path.is_dir():
            access = os.O_RDONLY
        else:
            access = os.O_RDWR
        descriptor = os.open(path, access | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:  # not there, or nobody can write there
        return False
    try:
        return not _try_lock(descriptor)
    finally:
        os.close(descriptor)


def _try_lock(descriptor: int) -> bool:
    """Lock a file, unless another process has; a file system without locks keeps nobody out."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        pass
    return True


def _open(run_dir: Path, descriptors: list[int]) -> None:
    """Open what is locked, the file that says who holds it last."""
    with explain_write_errors(run_dir, "free some space, or make it writable"):
        descriptors.append(os.open(run_dir, os.O_RDONLY | os.O_CLOEXEC))
        _held.add(descriptors[-1])
        descriptors.append(open_append(run_dir / FILE, 0o644, readable=True))
        _held.add(descriptors[-1])


def _acquire(descriptor: int) -> bool:
    deadline = time.monotonic() + _PATIENCE
    while not (locked := _try_lock(descriptor)) and time.monotonic() < deadline:
        time.sleep(0.1)
    return locked


def _await_silence(run_dir: Path) -> None:
    """Wait until the process that wrote the run last shows no sign of life; asked with the lock held.

    Some network file systems keep locks to one machine, so that of another one says nothing here.

    Raises:
        AssayError: It lives, on another machine.
    """
    before = _read_beat(run_dir)
    host = before[0].partition(" ")[2]
    if host in ("", socket.gethostname()):
        return
    seconds = _MISSED * _BEAT
    log.warning(
        "%s was last written on %s: waiting %g s for a heartbeat",
        run_dir,
        printable(host),
        seconds,
    )
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if _read_beat(run_dir) != before:
            raise lock_error(run_dir)
        time.sleep(_BEAT / 10)


@contextmanager
def _beating(run_dir: Path, descriptor: int, line: str) -> Iterator[None]:
    """Show that this process lives, and end it where another one has taken the run over."""
    left = threading.Event()

    def beat() -> None:
        while not left.wait(_BEAT):
            if (owner := _read_owner(run_dir)) and owner != line.strip():
                text = f"\n{run_dir} was taken over by {printable(owner)}: this process ends\n"
                os.write(2, text.encode(errors="replace"))
                os._exit(1)
            with suppress(OSError):
                os.utime(descriptor)

    thread = threading.Thread(target=beat, daemon=True, name="lock")
    thread.start()
    try:
        yield
    finally:
        left.set()
        thread.join()
        with suppress(OSError):
            if _read_owner(run_dir) == line.strip():
                os.truncate(descriptor, 0)  # whoever comes next, wherever, need not wait


def _read_owner(run_dir: Path) -> str:
    """The line of the process that has the lock; empty where none was there or it has let go."""
    with suppress(OSError):
        return read_whole(run_dir / FILE)[:4096].decode(errors="replace").partition("\n")[0]
    return ""


def _read_beat(run_dir: Path) -> tuple[str, int]:
    """What changes with each sign of life; the file is opened, so that a network file system asks anew."""
    return _read_owner(run_dir), (run_dir / FILE).stat().st_mtime_ns


def lock_error(run_dir: Path) -> AssayError:
    """What a process is told that would write a run which another one writes."""
    process, _, host = _read_owner(run_dir).partition(" ")
    hint = "wait until it has ended, or end it"
    who = "another process"
    if process.isdecimal() and host.isprintable():
        is_here = host == socket.gethostname()
        who = f"process {process}" + f" on {host}" * (not is_here)
        if is_here:
            hint += f": kill {process}"
        else:
            hint += " there"
    return AssayError(f"{run_dir} is still being written by {who}", hint=hint)


def _release_locks() -> None:
    """A forked process, such as one that loads data, must not keep the lock of a parent that is gone."""
    for descriptor in _held:
        with suppress(OSError):
            os.close(descriptor)
    _held.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_release_locks)
