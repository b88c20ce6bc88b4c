"""Files of a run or sweep directory, which may come from elsewhere: no link in it leads out of it."""

from __future__ import annotations

import errno
import os
import shlex
import stat
from pathlib import Path
from typing import BinaryIO

from assay.errors import AssayError

TEXTS = ("config.yaml", "overrides.yaml", "code.patch", "encoder.json", "tokenizer.json")
"""What a run writes about itself as it begins."""
IMPORTANCES = "importances.json"
RESULTS = ("predictions.parquet", "samples.parquet", IMPORTANCES)
"""What a run keeps of its test; importances of a table alone."""
_LOGS = ("log.txt", "metrics.csv", "journal.jsonl", "study.log")
_APPENDED = (".lock", *_LOGS)
OWN_FILES = (
    *(*_LOGS, *TEXTS, *RESULTS, "record.json"),
    *("results.csv", "groups.csv", "best.yaml", "out_of_fold.parquet"),
)
"""What a run or a sweep writes into its directory."""
_FLAGS = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0)


def open_append(path: Path, mode: int = 0o666, *, readable: bool = False) -> int:
    """Open a file to add to it, or make it; a link is not followed, and nothing else is opened either."""
    if readable:
        access = os.O_RDWR
    else:
        access = os.O_WRONLY
    try:
        descriptor = os.open(path, access | os.O_APPEND | os.O_CREAT | _FLAGS, mode)
    except OSError as error:
        # a link, also by BSD's name; a pipe
        if error.errno in (errno.ELOOP, errno.EMLINK, errno.ENXIO):
            raise _refusal(path, path.parent) from error
        raise
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode) or status.st_nlink > 1:
        os.close(descriptor)
        raise _refusal(path, path.parent)
    return descriptor


def read_whole(path: Path, largest: int = 64 << 20) -> bytes:
    """The contents of a file, refused above a size limit."""
    with _regular(path, os.O_RDONLY | _FLAGS & ~getattr(os, "O_NOFOLLOW", 0)) as file:
        if os.fstat(file.fileno()).st_size > largest:
            raise OSError(
                errno.EFBIG, f"larger than {largest >> 20} MiB; refusing to read it", str(path)
            )
        return file.read()


def check_inside(path: Path, directory: Path) -> None:
    """Refuse to show what lies elsewhere: a report is passed on to others."""
    if not path.resolve().is_relative_to(directory.resolve()):
        raise AssayError(
            f"{path} is a link to {path.resolve()}, outside of {directory}; its content is not shown"
        )


def read_tail(path: Path, most: int) -> bytes:
    """The last bytes of a log of any size; a link is not followed, for they may be shown to others."""
    with _regular(path, os.O_RDONLY | _FLAGS) as file:
        file.seek(max(0, os.fstat(file.fileno()).st_size - most))
        return file.read(most)


def _regular(path: Path, flags: int) -> BinaryIO:
    descriptor = os.open(path, flags)
    # of a folder, fdopen would name the descriptor
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "not a regular file", str(path))
    return os.fdopen(descriptor, "rb")


def check_links(directory: Path) -> None:
    """Refuse a directory to write in whose links lead out of it; asked before anything in it is opened."""
    if not directory.is_dir():
        return
    root = os.path.realpath(directory)
    pending = [str(directory)]
    while pending:
        with os.scandir(pending.pop()) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False) and entry.name not in OWN_FILES:
                    pending.append(entry.path)
                elif not _is_allowed(entry, root):
                    raise _refusal(Path(entry.path), directory)


def _is_allowed(entry: os.DirEntry[str], root: str) -> bool:
    if entry.is_symlink():  # such as one of Lightning's from the last checkpoint to the best
        return Path(os.path.realpath(entry.path)).is_relative_to(root)
    status = entry.stat(follow_symlinks=False)
    if not stat.S_ISREG(status.st_mode):
        return stat.S_ISSOCK(status.st_mode)  # cannot be opened by its name
    is_appended = entry.name in _APPENDED or Path(entry.path).parent.name == "logs"
    return status.st_nlink == 1 or not is_appended


def _refusal(path: Path, directory: Path) -> AssayError:
    reason = "is not a file of one name"
    if path.is_symlink():
        reason = f"is a link to {os.path.realpath(path)}"
    return AssayError(
        f"{path} {reason}: writing in {directory} could change files elsewhere",
        hint=f"remove it: rm {shlex.quote(str(path))}; to keep one with two names, copy it in place",
    )
