"""A file appears complete under its name or not at all."""

from __future__ import annotations

import os
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def replacing(path: Path) -> Iterator[IO[bytes]]:
    """Open a temporary file in the same directory; on leaving well it is synced and takes the name, otherwise it is removed.

    Args:
        path: The final name. What it holds stays untouched until the new content is on disk.

    Yields:
        A binary file to write to.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".tmp")
    try:
        with os.fdopen(descriptor, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        Path(name).chmod(0o666 & ~_umask())
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
    sync_directory(path.parent)


def write_text(path: Path, text: str) -> None:
    """Write a whole text file in UTF-8.

    Args:
        path: The final name.
        text: The content.
    """
    with replacing(path) as file:
        file.write(text.encode("utf-8"))


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
    finally:
        os.close(descriptor)


def _umask() -> int:
    # There is no way to read it without setting it.
    mask = os.umask(0)
    os.umask(mask)
    return mask
