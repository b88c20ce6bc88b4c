"""Deaths and failures at a chosen system call, for tests that saving survives them.

`at_call` counts what the writers of this process ask the system for, from whatever thread; `dies_at` does so
in a forked process that kills itself there, with no chance to clean up.
"""

import os
import signal
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

CALLS = ("open", "write", "fsync", "close", "replace", "unlink")


@contextmanager
def at_call(
    act: Callable[[str, int], None], names: tuple[str, ...] = CALLS, below: str = ""
) -> Iterator[list[str]]:
    """Call `act(name, number)` before each system call that writers make, counted from 0.

    Only for files whose path contains `below`; yields the calls so far.
    """
    calls: list[str] = []
    ours: set[int] = set()
    genuine = {name: getattr(os, name) for name in CALLS}

    def watched(name: str) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            first = arguments[0]
            mine = first in ours if isinstance(first, int) else below in str(first)
            if mine and name in names:
                calls.append(name)
                act(name, len(calls) - 1)
            result = genuine[name](*arguments, **options)
            if mine and name == "open":
                ours.add(result)
            elif name == "close":
                ours.discard(first)
            return result

        return call

    fdopen = os.fdopen

    def opened(descriptor: int, *arguments: Any, **options: Any) -> Any:
        if arguments[:1] == ("rb",):  # its number is free again when the file object closes it, unseen
            ours.discard(descriptor)
        return fdopen(descriptor, *arguments, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fdopen", opened)
        for name in CALLS:
            patch.setattr(os, name, watched(name))
        yield calls


def count_calls(work: Callable[[], None], below: str = "") -> int:
    """How many calls `work` makes when it is left alone."""
    with at_call(lambda *_: None, below=below) as calls:
        work()
    return len(calls)


def dies_at(number: int, work: Callable[[], None], *, below: str = "", tmpdir: Path | None = None) -> bool:
    """Run `work` in a forked process that dies by SIGKILL at its call of that number; whether it did."""

    def die(_: str, reached: int) -> None:
        if reached == number:
            os.kill(os.getpid(), signal.SIGKILL)

    process = os.fork()
    if not process:
        code = 1
        try:
            if tmpdir is not None:
                os.environ["TMPDIR"], tempfile.tempdir = str(tmpdir), None
            with at_call(die, below=below):
                work()
            code = 0
        finally:
            os._exit(code)
    _, status = os.waitpid(process, 0)
    assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0, "the work itself failed"
    return os.WIFSIGNALED(status)
