"""A file appears complete under its name or not at all."""

from __future__ import annotations

import errno
import os
import re
import uuid
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, final

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_UNFINISHED = re.compile(r"\..+\.[0-9a-f]{12}\.tmp")


@final
class Output:
    """An open file whose every write is one system call.

    Without a buffer, a process forked in between (a worker that loads data) has nothing of it to write.

    Args:
        descriptor: Of the file; the caller closes it.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def write(self, data: bytes | bytearray | memoryview) -> int:
        """Write all of it.

        Args:
            data: The bytes.

        Returns:
            How many there were.
        """
        rest = memoryview(data).cast("B")
        size = len(rest)
        while rest:
            rest = rest[os.write(self._descriptor, rest) :]
        return size


@contextmanager
def replacing(path: Path) -> Iterator[Output]:
    """Open a temporary file beside a path; left well, it is synced and takes the name, else it is removed.

    Args:
        path: The final name. What it holds stays untouched until the new content is on disk.

    Yields:
        A binary file to write to.

    Raises:
        OSError: It could not be written. The old content still stands, unless only the last step failed, the
            sync of the directory: then the new content stands, and might not survive a power cut.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.is_file() and not path.is_dir() and path.exists():
        # Such as /dev/null, which root could replace for the whole machine.
        raise OSError(errno.EINVAL, "it is there and is not a regular file", str(path))
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex[:12]}.tmp")
    # Not tempfile: its files are readable by their owner alone, and the rename would keep that.
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
    try:
        descriptor = os.open(temporary, flags, 0o666)
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
    """Write a whole file.

    Args:
        path: The final name.
        data: The content.
    """
    with replacing(path) as file:
        file.write(data)


def write_text(path: Path, text: str) -> None:
    """Write a whole text file in UTF-8, line ends as they are.

    Args:
        path: The final name.
        text: The content. Bytes that were no UTF-8 when it was decoded with `surrogateescape` come out as
            they were.
    """
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


def remove_unfinished(*folders: Path) -> list[Path]:
    """Remove what processes that were killed while they wrote have left; it may be gigabytes.

    Args:
        folders: Such as a run directory and its `checkpoints`. Nobody else may be writing there now.

    Returns:
        What was removed.
    """
    unfinished = [
        path
        for folder in folders
        if folder.is_dir()
        for path in sorted(folder.iterdir())
        if _UNFINISHED.fullmatch(path.name) and path.is_file() and not path.is_symlink()
    ]
    for path in unfinished:
        path.unlink(missing_ok=True)
    return unfinished
