"""A file appears complete under its name or not at all."""

from __future__ import annotations

import errno
import importlib
import os
import re
import shutil
import time
import uuid
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final, final

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

fcntl: Final[Any] = None if os.name == "nt" else importlib.import_module("fcntl")
"""Locks of files, which Windows does not have."""
_TEMPORARY = re.compile(r"\.(?P<name>.+)\.[0-9a-f]{12}\.tmp", re.DOTALL)
_DAY = 86_400.0
"""Seconds after which a temporary file is a leftover of a process that was killed."""


@final
class Output:
    """An open file whose every write is one system call."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def write(self, data: bytes | bytearray | memoryview) -> int:
        """Write all bytes."""
        remaining = memoryview(data).cast("B")
        size = len(remaining)
        while remaining:
            remaining = remaining[os.write(self._descriptor, remaining) :]
        return size


@contextmanager
def open_atomic(path: Path) -> Iterator[Output]:
    """Open a temporary file beside a path; on success it is synced and renamed to the path, else removed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.is_file() and not path.is_dir() and path.exists():
        # Such as /dev/null, which root could replace for the whole machine.
        raise OSError(errno.EINVAL, "exists and is not a regular file", str(path))
    temporary = temporary_name(path)
    # Not tempfile: its files are readable by their owner alone, and the rename would keep that.
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
    descriptor = os.open(temporary, flags, 0o666)
    try:
        try:
            yield Output(descriptor)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        temporary.replace(path)
    except BaseException:
        with suppress(OSError):  # keep the first error
            temporary.unlink(missing_ok=True)
        raise
    sync_directory(path.parent)


def write_bytes(path: Path, data: bytes) -> None:
    """Write a whole file."""
    with open_atomic(path) as file:
        file.write(data)


def write_text(path: Path, text: str) -> None:
    """Write a whole text file in UTF-8, line ends as they are."""
    write_bytes(path, text.encode("utf-8", "surrogateescape"))


def sync_directory(path: Path) -> None:
    """Make a rename in this directory survive a power cut."""
    if os.name == "nt":  # Windows has no such call
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        # some network file systems cannot, and need not
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
    finally:
        os.close(descriptor)


@contextmanager
def temporary_folder(path: Path, mode: int = 0o777) -> Iterator[Path]:
    """Make a folder beside a path, removed when the block is left; leftovers of killed processes go first.

    It is locked: what is written in it does not change its time, by which leftovers are known.
    """
    remove_unfinished(path.parent, path.name)
    folder = temporary_name(path)
    folder.mkdir(mode)
    try:
        with _try_lock(folder):
            yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _try_lock(folder: Path) -> Iterator[bool]:
    """Lock a folder; False where a living process has locked it."""
    if fcntl is None:
        yield True
        return
    descriptor = os.open(folder, os.O_RDONLY | os.O_NOFOLLOW)
    try:
        is_free = True
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:  # any other one: a file system without locks
            is_free = not isinstance(error, BlockingIOError)
        yield is_free
    finally:
        os.close(descriptor)


def temporary_name(path: Path) -> Path:
    """A new hidden name beside a path, which `remove_unfinished` and `is_temporary` know."""
    return path.with_name(f".{path.name}.{uuid.uuid4().hex[:12]}.tmp")


def is_temporary(name: str) -> bool:
    """Whether a file or folder of this name is one that is being written or removed, or was left so."""
    return _TEMPORARY.fullmatch(name) is not None


def remove_unfinished(folder: Path, name: str = "", *, older_than: float = _DAY) -> list[Path]:
    """Remove what processes that are gone left half written or half removed; it may be gigabytes."""
    removed = []
    for path in sorted(folder.iterdir()) if folder.is_dir() else ():
        match = _TEMPORARY.fullmatch(path.name)
        if not match or name not in ("", match["name"]) or path.is_symlink():
            continue
        with suppress(OSError):  # gone, or another user's
            if time.time() - path.stat().st_mtime < older_than:
                continue
            if path.is_dir():
                with _try_lock(path) as is_free:
                    if not is_free:
                        continue
                    shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink()
            removed.append(path)
    return removed
