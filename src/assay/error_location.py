"""Where in the user's own code an exception came from."""

from __future__ import annotations

import functools
import inspect
import re
import sysconfig
import traceback
from pathlib import Path
from typing import Any

from assay.errors import first_line

_FRAME = re.compile(r'File "([^"]+)", line (\d+), in (\S+)')
_WORKER = re.compile(r"^Caught (\w+) in DataLoader worker process \d+\.$")


def own_frame(error: BaseException) -> str:
    """The innermost line of the user's own code that an exception went through, or that cannot be parsed.

    Args:
        error: With its causes; one of a process that loads data has its traceback in its message.

    Returns:
        Such as `my_project/net.py:12, in forward`; empty where none of it is the user's.
    """
    if isinstance(error, SyntaxError) and error.filename and _is_own(error.filename):
        return f"{shown_path(error.filename)}:{error.lineno}"
    for one in _chain(error):
        at = traceback.walk_tb(one.__traceback__)
        frames = [(frame.f_code.co_filename, line, frame.f_code.co_name) for frame, line in at]
        if _WORKER.match(first_line(one)):
            frames += [(file, int(line), name) for file, line, name in _FRAME.findall(str(one))]
        for file, line, name in reversed(frames):
            if _is_own(file):
                return f"{shown_path(file)}:{line}, in {name}"
    return ""


def shown_path(file: str) -> Path:
    """A file as messages show it: from the current directory, where it lies below that."""
    here = Path(file)
    return here.relative_to(Path.cwd()) if here.is_relative_to(Path.cwd()) else here


def defined_at(function: Any) -> str:
    """Where the user has written a function or a method, such as `my_project/net.py:12`; empty if not theirs.

    Args:
        function: Or anything that can be called.
    """
    code = getattr(inspect.unwrap(function), "__code__", None) if callable(function) else None
    if code is None or not _is_own(code.co_filename):
        return ""
    return f"{shown_path(code.co_filename)}:{code.co_firstlineno}"


def one_line_of(error: BaseException) -> str:
    """Type and first line of the message of an exception, and where in the user's own code it came from."""
    name, text = type(error).__name__, first_line(error.msg if isinstance(error, SyntaxError) else str(error))
    if match := _WORKER.match(text):  # the message is that of torch; the last line of it is what was raised
        said = str(error).strip().splitlines()[-1]
        kind, _, rest = said.partition(": ")
        name, text = match[1], rest if kind.rpartition(".")[2] == match[1] else said
    frame = own_frame(error)
    told = f"{name}: {text}" if text else name
    return f"{told} ({frame})" if frame else told


def _chain(error: BaseException) -> list[BaseException]:
    """The exception and what it came from, the first that was raised first."""
    every: list[BaseException] = []
    one: BaseException | None = error
    while one is not None and one not in every:
        every.append(one)
        one = one.__cause__ or (None if one.__suppress_context__ else one.__context__)
    return every[::-1]


@functools.cache
def _installed() -> tuple[Path, ...]:
    names = ("stdlib", "platstdlib", "purelib", "platlib")
    return (Path(__file__).parent, *(Path(sysconfig.get_path(name)).resolve() for name in names))


@functools.lru_cache(maxsize=1024)
def _is_own(file: str) -> bool:
    path = Path(file)
    return path.is_file() and not any(path.resolve().is_relative_to(place) for place in _installed())
