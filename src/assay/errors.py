"""What a user sees instead of a traceback: one message that names the key and the way out."""

from __future__ import annotations

import errno
import os
import sqlite3
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

NO_ROOM: Final = {
    number: os.strerror(number)
    for number in (getattr(errno, name, None) for name in ("ENOSPC", "EDQUOT", "EROFS"))
    if number is not None
}
"""What the system says where nothing can be written: a full disk, a quota, a read-only file system."""


class AssayError(Exception):
    """An error the user can mend; the command line prints its message alone and exits with `exit_code`.

    Args:
        message: One or two short sentences: what is wrong and what was expected.
        hint: What to type or do next.
    """

    exit_code = 1

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message}\n  → {self.hint}" if self.hint else self.message


class ConfigError(AssayError):
    """A config cannot mean anything that runs.

    Args:
        message: What is wrong.
        key: Full key of the value at fault, such as `optimizer.lr`.
        file: Where the value was written.
        hint: What to type instead.
    """

    exit_code = 2

    def __init__(self, message: str, *, key: str = "", file: str = "", hint: str = "") -> None:
        where = f"{key}: " if key else ""
        super().__init__(f"{where}{message}", hint=hint)
        self.key = key
        self.file = ""
        self.add_file(file)

    def add_file(self, file: str) -> None:
        """Say where the value was written, once that is known.

        Args:
            file: Such as `conf/optimizer/adamw.yaml:3` or `command line`; empty when nobody knows.

        >>> error = ConfigError("is not a number", key="optimizer.lr")
        >>> error.add_file("conf/optimizer/adamw.yaml:4")
        >>> error.message
        'optimizer.lr: is not a number (conf/optimizer/adamw.yaml:4)'
        """
        if file and not self.file:
            self.file = file
            self.message = f"{self.message} ({file})"
            self.args = (self.message,)


class DataError(AssayError):
    """The data cannot be read, or cannot be what the config says it is."""


class DeviceError(AssayError):
    """This machine does not have the device or the precision that was asked for."""


class NonFiniteError(AssayError):
    """A loss, gradient, weight or metric has become NaN or infinite."""


class ProcessError(AssayError):
    """A process that everything else needs cannot be started."""


def cannot_write(error: BaseException) -> str:
    """What could not be written, as the disk is full or read-only; empty for any other error.

    Args:
        error: Whatever was raised.

    >>> cannot_write(OSError(28, "No space left on device", "metrics.csv"))
    'No space left on device: metrics.csv'
    """
    for one in causes(error):
        if isinstance(one, OSError) and one.errno in NO_ROOM:
            return f"{one.strerror}: {one.filename}" if one.filename else f"{one.strerror}"
        if isinstance(one, sqlite3.OperationalError) and "disk is full" in str(one):
            return str(one)
    return ""


def first_line(said: BaseException | str) -> str:
    r"""The first line of a message; of an error that says nothing, the name of its class.

    Args:
        said: An error, or a text.

    >>> first_line(ValueError("no\nway")), first_line(ValueError()), first_line("")
    ('no', 'ValueError', '')
    """
    lines = str(said).strip().splitlines()
    return lines[0] if lines else "" if isinstance(said, str) else type(said).__name__


def causes(error: BaseException) -> Iterator[BaseException]:
    """An exception, and what it was raised from."""
    seen: set[int] = set()
    one: BaseException | None = error
    while one is not None and id(one) not in seen:
        seen.add(id(one))
        yield one
        one = one.__cause__


def exit_place(stop: SystemExit) -> str:
    """What is said of code that has ended the process itself.

    Args:
        stop: As it was caught.
    """
    frames = traceback.extract_tb(stop.__traceback__)
    # Weights & Biases puts a function of its own in the place of sys.exit.
    last = next(
        (frame for frame in reversed(frames) if "wandb" not in Path(frame.filename).parts), frames[-1]
    )
    return f"SystemExit: {stop.code}, raised in {last.filename}:{last.lineno}: {last.line}"
