"""A file appears complete under its name or not at all."""

from __future__ import annotations

import errno
import importlib
import os
import re
import shutil
import stat
import time
import uuid
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, final

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_TEMPORARY = re.compile(r"\.(?P<name>.+)\.[0-9a-f]{12}\.tmp", re.DOTALL)
_fcntl: Any = None if os.name == "nt" else importlib.import_module("fcntl")  # Windows has no such locks
_DAY = 86_400.0
"""Seconds after which a temporary file is a leftover where nothing can be locked."""


@final
class Output:
    """An open file whose every write is one system call."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def write(self, data: bytes | bytearray | memoryview) -> int:
        """Write all of it."""
        rest = memoryview(data).cast("B")
        size = len(rest)
        while rest:
            rest = rest[os.write(self._descriptor, rest) :]
        return size


@contextmanager
def replacing(path: Path) -> Iterator[Output]:
    """Open a temporary file beside a path; left well, it is synced and takes the name, else it is removed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.is_file() and not path.is_dir() and path.exists():
        # Such as /dev/null, which root could replace for the whole machine.
        raise OSError(errno.EINVAL, "it is there and is not a regular file", str(path))
    temporary, descriptor = _create(path)
    try:
        try:
            yield Output(descriptor)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        temporary.replace(path)
    except BaseException:
        with suppress(OSError):  # the first error is the one to tell
            temporary.unlink(missing_ok=True)
        raise
    sync_directory(path.parent)


def write_bytes(path: Path, data: bytes) -> None:
    """Write a whole file."""
    with replacing(path) as file:
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
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # some network file systems cannot, and need not
            raise
    finally:
        os.close(descriptor)


@contextmanager
def temporary_folder(path: Path, mode: int = 0o777) -> Iterator[Path]:
    """Make a folder beside a path, removed when the block is left; leftovers of killed processes go first."""
    remove_unfinished(path.parent, path.name)
    folder = temporary_name(path)
    folder.mkdir(mode)
    try:
        with locked(folder):
            yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def temporary_name(path: Path) -> Path:
    """A new hidden name beside a path, which `remove_unfinished` and `is_temporary` know."""
    return path.with_name(f".{path.name}.{uuid.uuid4().hex[:12]}.tmp")


def is_temporary(name: str) -> bool:
    """Whether a file or folder of this name is one that is being written or removed, or was left so."""
    return _TEMPORARY.fullmatch(name) is not None


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Keep `remove_unfinished` away from a folder until the block is left or this process dies."""
    if _fcntl is None:
        yield
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        _lock(descriptor)
        yield
    finally:
        os.close(descriptor)


def remove_unfinished(folder: Path, name: str = "") -> list[Path]:
    """Remove what processes that are gone left half written or half removed; it may be gigabytes."""
    if not folder.is_dir():
        return []
    found = [(path, _TEMPORARY.fullmatch(path.name)) for path in sorted(folder.iterdir())]
    return [path for path, match in found if match and name in ("", match["name"]) and _remove(path)]


def _remove(path: Path) -> bool:
    """Remove a temporary file or folder unless a process holds it."""
    try:
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))
    except OSError:  # gone, a link, or another user's
        return False
    try:
        mode = os.fstat(descriptor).st_mode
        if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)) or not _lock(descriptor, wait=False):
            return False
        shutil.rmtree(path, ignore_errors=True) if stat.S_ISDIR(mode) else path.unlink(missing_ok=True)
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return True


def _create(path: Path) -> tuple[Path, int]:
    """A new file beside a path, open for writing and locked."""
    # Not tempfile: its files are readable by their owner alone, and the rename would keep that.
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
    while True:
        temporary = temporary_name(path)
        descriptor = os.open(temporary, flags, 0o666)
        _lock(descriptor)
        if temporary.exists():  # else removed before it was locked
            return temporary, descriptor
        os.close(descriptor)


def _lock(descriptor: int, *, wait: bool = True) -> bool:
    """Lock a file or folder until it is closed; False where a process has it, or may have it."""
    try:
        _fcntl.flock(descriptor, _fcntl.LOCK_EX | (0 if wait else _fcntl.LOCK_NB))
    except BlockingIOError:
        return False
    except (OSError, AttributeError):  # nothing can be locked there, or on Windows
        return time.time() - os.fstat(descriptor).st_mtime > _DAY
    return True
