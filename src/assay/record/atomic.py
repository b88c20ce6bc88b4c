"""A file appears complete under its name or not at all."""

from __future__ import annotations

import errno
import os
import uuid
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@contextmanager
def replacing(path: Path) -> Iterator[IO[bytes]]:
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
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex[:12]}.tmp")
    # Not tempfile: its files are readable by their owner alone, and the rename would keep that.
    try:
        with temporary.open("xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
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
    """Make a rename in this directory survive a power cut.

    Args:
        path: The directory.
    """
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
