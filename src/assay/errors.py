"""What a user sees instead of a traceback: one message that names the key, the place and the way out."""

from __future__ import annotations

import errno
import functools
import math
import re
import sqlite3
import sys
import sysconfig
import traceback
from collections.abc import Sequence
from contextlib import contextmanager
from numbers import Real
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator


_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EROFS)
"""A full disk, a quota, a read-only file system."""


class AssayError(Exception):
    """An error the user can fix; the command line prints its message alone and exits with `exit_code`.

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
        if self.hint:
            return f"{self.message}\n  → {self.hint}"
        return self.message


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
        where = ""
        if key:
            where = f"{key}: "
        super().__init__(f"{where}{message}", hint=hint)
        self.key = key
        self.file = ""
        self.add_file(file)

    def add_file(self, file: str) -> None:
        """Say where the value was written, once that is known.

        Args:
            file: Such as `conf/optimizer/adamw.yaml:3` or `command line`; empty where unknown.

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


class Pruned(Exception):  # noqa: N818 - it is not an error
    """A callback has ended the run because it is not worth going on; the message says why."""


class NonFiniteError(AssayError):
    """A loss, gradient, weight or metric has become NaN or infinite."""


NON_FINITE = "leave such samples out, or fill in what is missing"
"""What to do about samples that hold NaN or infinity."""


class ProcessError(AssayError):
    """A process that everything else needs cannot be started."""


class RankError(AssayError):
    """Another process of the same job has failed, or is gone.

    Args:
        message: Which one, and what it has said.
        hint: What to type or do next.
        cause: Kind of the failure, as a run's record has it.
    """

    def __init__(self, message: str, *, hint: str = "", cause: str = "") -> None:
        super().__init__(message, hint=hint)
        self.cause = cause


def check_numbers(interval: str, **numbers: Any) -> None:
    """Refuse a number, or one of several, outside of an interval; None passes.

    >>> check_numbers("[0, 1)", decay=1.0)
    Traceback (most recent call last):
    ValueError: decay=1.0: expected a number in [0, 1)
    """
    low, high = map(float, interval[1:-1].split(","))
    ends = [end for end, bracket in ((low, interval[0]), (high, interval[-1])) if bracket in "[]"]
    if high < math.inf:
        limit = f"in {interval}"
    else:
        limit = f"{'>=' if ends else '>'} {low:g}"
    for name, value in numbers.items():
        for number in (
            value if isinstance(value, Sequence) and not isinstance(value, str) else [value]
        ):
            inside = isinstance(number, Real) and (low < float(number) < high or number in ends)
            if number is not None and not inside:
                raise ValueError(f"{name}={value}: expected a number {limit}")


def write_failure(error: BaseException) -> str:
    """What could not be written, as the disk is full or read-only; empty for any other error.

    >>> write_failure(OSError(28, "No space left on device", "metrics.csv"))
    'No space left on device: metrics.csv'
    """
    for one in causes(error):
        if isinstance(one, OSError) and one.errno in _NO_ROOM:
            if one.filename:
                return f"{one.strerror}: {one.filename}"
            return f"{one.strerror}"
        if isinstance(one, sqlite3.OperationalError) and "disk is full" in str(one):
            return str(one)
    return ""


@contextmanager
def explain_write_errors(place: object, hint: str = "") -> Iterator[None]:
    """Say in a line that a file or folder cannot be written, and what to do."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or first_line(error)
        raise AssayError(f"{place} cannot be written: {reason}", hint=hint) from error


def first_line(said: BaseException | str) -> str:
    r"""The first line of a message; of an error that says nothing, the name of its class.

    >>> first_line(ValueError("no\nway")), first_line(ValueError()), first_line("")
    ('no', 'ValueError', '')
    """
    lines = str(said).strip().splitlines()
    if lines:
        return lines[0]
    if isinstance(said, str):
        return ""
    return type(said).__name__


def causes(error: BaseException, *, context: bool = False) -> Iterator[BaseException]:
    """An exception, and what it was raised from; with `context` also what was being handled then."""
    seen: set[int] = set()
    one: BaseException | None = error
    while one is not None and id(one) not in seen:
        seen.add(id(one))
        yield one
        one = one.__cause__ or (
            one.__context__ if context and not one.__suppress_context__ else None
        )


_FRAME = re.compile(r'File "([^"]+)", line (\d+), in (\S+)')
_WORKER = re.compile(r"^Caught (\w+) in DataLoader worker process \d+\.$")


def user_frame(error: BaseException) -> str:
    """The innermost line of the user's own code that an exception went through, or that cannot be parsed."""
    if isinstance(error, SyntaxError) and error.filename and is_users_own(error.filename):
        return f"{display_path(error.filename)}:{error.lineno}"
    for one in reversed([*causes(error, context=True)]):
        at = traceback.walk_tb(one.__traceback__)
        frames = [(frame.f_code.co_filename, line, frame.f_code.co_name) for frame, line in at]
        if _WORKER.match(first_line(one)):
            frames += [(file, int(line), name) for file, line, name in _FRAME.findall(str(one))]
        for file, line, name in reversed(frames):
            if is_users_own(file):
                return f"{display_path(file)}:{line}, in {name}"
    return ""


def display_path(file: str) -> Path:
    """A file as messages show it: from the current directory, where it lies below that."""
    here = Path(file)
    if here.is_relative_to(Path.cwd()):
        return here.relative_to(Path.cwd())
    return here


def describe_error(error: BaseException) -> str:
    """Type and first line of the message of an exception, and where in the user's own code it came from."""
    name = type(error).__name__
    if isinstance(error, SyntaxError):
        said = error.msg
    else:
        said = str(error)
    text = first_line(said)
    # the message is that of torch; the last line of it is what was raised
    if match := _WORKER.match(text):
        said = str(error).strip().splitlines()[-1]
        kind, _, rest = said.partition(": ")
        name = match[1]
        if kind.rpartition(".")[2] == match[1]:
            text = rest
        else:
            text = said
    frame = user_frame(error)
    if text:
        told = f"{name}: {text}"
    else:
        told = name
    if frame:
        return f"{told} ({frame})"
    return told


@functools.cache
def _installed() -> tuple[Path, ...]:
    names = ("stdlib", "platstdlib", "purelib", "platlib")
    return (
        Path(__file__).parents[1],
        *(Path(sysconfig.get_path(name)).resolve() for name in names),
    )


@functools.lru_cache(maxsize=1024)
def is_users_own(file: str) -> bool:
    """Whether a file is code of the user, neither assay nor an installed package."""
    path = Path(file)
    return path.is_file() and not any(
        path.resolve().is_relative_to(place) for place in _installed()
    )


def is_users_class(kind: type) -> bool:
    """Whether a class is the user's own; one that a notebook defines has no file."""
    file = getattr(sys.modules.get(kind.__module__), "__file__", None)
    return file is None or is_users_own(file)
