"""All pictures of a data set, looked at before training: which of them are whole, and what they hold."""

from __future__ import annotations

import hashlib
import json
import os
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from assay.data.images.image_file import has_several_frames, read_bytes, verify
from assay.files.atomic import write_text

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_CHUNK: Final = 32
_FEW: Final = 1000
"""Files that are looked at so quickly that nothing need be remembered."""
_SETTLED: Final = 2.0
"""Seconds after which a file's times tell whether it was changed."""


class Look(NamedTuple):
    """What is known of a file.

    Attributes:
        sha256: Of its contents; empty where it could not be read.
        several: Whether it has several frames or pages.
        size: Height and width.
        bad: Why it cannot be used, as a sentence; empty where it can.
    """

    sha256: str = ""
    several: bool = False
    size: tuple[int, int] = (0, 0)
    bad: str = ""


def look_at(paths: Sequence[str], take: Callable[[int, bytes], tuple[int, int]]) -> list[Look]:
    """Read every file once, by as many threads as there are cores.

    Args:
        paths: Of the files.
        take: Called with the position of a file and its contents, returns height and width; raises a
            ValueError where it is bad.

    Returns:
        One a file, in their order.
    """

    def look(index: int) -> Look:
        try:
            content = read_bytes(paths[index])
            size = take(index, content)
        except ValueError as error:
            return Look(bad=str(error))
        return Look(hashlib.sha256(content).hexdigest(), has_several_frames(content), size)

    def look_at_some(start: int) -> list[Look]:
        return [look(index) for index in range(start, min(start + _CHUNK, len(paths)))]

    pool = ThreadPoolExecutor(os.cpu_count())
    try:
        return [one for some in pool.map(look_at_some, range(0, len(paths), _CHUNK)) for one in some]
    finally:
        pool.shutdown(cancel_futures=True)


def survey(root: Path, paths: Sequence[str]) -> list[Look]:
    """Verify every file, and remember of those that are whole what they held.

    A file is read anew if its size, its inode or one of its times (that of its last change cannot be set by
    hand) is another than when it was read.

    Args:
        root: The folder they lie in, which what is remembered is kept by.
        paths: Of the files.
    """
    if len(paths) < _FEW:
        return look_at(paths, _verify)
    kept = _remembered(root)
    states = {path: _state(path) for path in paths}
    looks = {path: Look(*kept[path][1:]) for path in paths if path in kept and kept[path][0] == states[path]}
    new = [path for path in paths if path not in looks]
    looks.update(zip(new, look_at(new, _verify), strict=True))
    now = time.time_ns()
    if new:
        settled = {
            path: (state, *looks[path][:3])
            for path, state in states.items()
            if state and not looks[path].bad and now - state[3] > _SETTLED * 1e9
        }
        _remember(root, settled)
    return [looks[path] for path in paths]


def _verify(index: int, content: bytes) -> tuple[int, int]:
    del index
    return verify(content)


def _state(path: str) -> list[int]:
    try:
        stat = Path(path).stat()
    except OSError:
        return []
    return [stat.st_size, stat.st_ino, stat.st_mtime_ns, stat.st_ctime_ns]


def _home() -> Path:
    """The user's cache folder."""
    told = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(told) if Path(told).is_absolute() else Path.home() / ".cache") / "assay" / "pictures"


def _file(root: Path) -> Path:
    return _home() / f"{hashlib.sha256(os.fsencode(root.resolve())).hexdigest()[:32]}.json"


def _remembered(root: Path) -> dict[str, tuple[Any, ...]]:
    try:
        kept = json.loads(_file(root).read_bytes())
        return {
            str(root / name): (state, sha, several, (int(height), int(width)))
            for name, (state, sha, several, (height, width)) in kept.items()
        }
    except (OSError, ValueError, AttributeError, TypeError):
        return {}  # it is made anew


def _remember(root: Path, kept: dict[str, tuple[Any, ...]]) -> None:
    file = _file(root)
    names = {os.path.relpath(path, root): known for path, known in kept.items()}
    with suppress(
        OSError
    ):  # a home that cannot be written, or is full: the files are read again the next time
        write_text(file, json.dumps(names))
