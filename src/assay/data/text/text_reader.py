"""Files of UTF-8, found in a folder and read."""

from __future__ import annotations

import hashlib
import os
import sysconfig
from pathlib import Path
from typing import TYPE_CHECKING, Final

from assay.data.memory import free_memory
from assay.data.text.text_split import Text
from assay.errors import DataError
from assay.quoting import counted

if TYPE_CHECKING:
    from collections.abc import Sequence

_NAMED: Final = 5
_BYTES_EACH: Final = 12
"""Memory per byte of text at most: bytes, text, its tokens as they are made, and as they are kept."""
_LEFT_OUT: Final = {"site-packages", "dist-packages", "test", "tests", "idlelib", "__pycache__"}
"""Folders of the standard library that some systems leave out, or that hold other packages."""


def standard_library(pattern: str) -> list[tuple[str, Path]]:
    """Names and paths of the modules of Python's standard library.

    Args:
        pattern: As for `find`.
    """
    found = find(Path(sysconfig.get_path("stdlib")), pattern)
    parts = ((name, path, name.split("/")) for name, path in found)
    return [
        (name, path)
        for name, path, parts in parts
        if not _LEFT_OUT & {*parts} and parts[-1][:11] != "_sysconfigd"
    ]


def find(root: Path, pattern: str) -> list[tuple[str, Path]]:
    """Names within a folder and paths of its files, ordered by name; a file is itself.

    Args:
        root: The folder, or one file.
        pattern: Of the names, as `pathlib` takes it; hidden files and folders are not found.
    """
    if root.is_file():
        return [(root.name, root)]
    named = ((path.relative_to(root).as_posix(), path) for path in root.glob(pattern) if path.is_file())
    return sorted((name, path) for name, path in named if not any(one[0] == "." for one in name.split("/")))


def read(files: Sequence[tuple[str, Path]], where: str, *, skips: bool) -> tuple[list[Text], str, list[str]]:
    """What files hold.

    Args:
        files: Names and paths.
        where: Key and value that named them, for messages.
        skips: Leave out what is not UTF-8.

    Returns:
        Texts that are not empty, the SHA-256 of names and contents, and sentences on what was left out.

    Raises:
        DataError: A file is not UTF-8 or cannot be read, or all together need more memory than there is.
    """
    size, free = sum(path.stat().st_size for _, path in files), free_memory()
    if size * _BYTES_EACH > free:
        raise DataError(
            f"{where}: {size / 1e9:,.2f} GB of text take up to {size * _BYTES_EACH / 1e9:,.1f} GB of memory "
            f"while they become tokens; {free / 1e9:,.1f} GB are free",
            hint="name fewer files with data.source.pattern, or cut them",
        )
    texts, bad, digest, empty = list[Text](), list[str](), hashlib.sha256(), 0
    for name, path in files:
        try:
            content = path.read_bytes()
            text = content.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            bad.append(f"{name} is not UTF-8 at byte {error.start:,}")
            continue
        except OSError as error:
            bad.append(f"{name} cannot be read: {os.strerror(error.errno or 0)}")
            continue
        empty += not text
        if text:
            texts.append(Text(name, text))
        digest.update(f"{len(name)}:{name};{len(content)};".encode())
        digest.update(content)
    notes = [f"{where}: {counted(empty, 'empty file')} left out"] if empty else []
    if bad:
        more = f"; and {len(bad) - _NAMED} more" if len(bad) > _NAMED else ""
        told = f"{where}: {len(bad)} of {counted(len(files), 'file')} cannot be used: "
        told += "; ".join(bad[:_NAMED]) + more
        if not skips:
            raise DataError(
                told, hint="convert them, name others with data.source.pattern, or data.source.on_bad=skip"
            )
        notes.append(f"{told}; left out, as data.source.on_bad=skip says")
    return texts, digest.hexdigest(), notes
