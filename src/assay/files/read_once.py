"""What is read from a file that several steps of a command need."""

from __future__ import annotations

from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

_kept: ContextVar[dict[Any, Any] | None] = ContextVar("kept", default=None)


@contextmanager
def read_once() -> Iterator[None]:
    """Within it, the file that `keep` is asked for last is kept as it was read."""
    token = _kept.set({})
    try:
        yield
    finally:
        _kept.reset(token)


def keep(path: Path, options: str, read: Callable[[], Any], read_part: Callable[[], Any]) -> Any:
    """What is read from a file as a whole with some options, kept until it changes; else a part of it."""
    kept = _kept.get()
    if kept is None:
        return read_part()
    about = path.stat()
    place = str(path), about.st_mtime_ns, about.st_size, options
    if place not in kept:
        kept.clear()
        kept[place] = read()
    return kept[place]
