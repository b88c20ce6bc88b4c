"""Picture files are read once: what is found in them is kept in the user's cache, and what is decoded too."""

from __future__ import annotations

import hashlib
import os
import stat
import time
import zlib
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, final

import msgspec
import numpy as np
import PIL
import torch
import torchvision  # type: ignore[import-untyped]  # torchvision ships no types

from assay.data.core.source_files import cache_folder, cache_limit
from assay.files.atomic import fcntl, remove_unfinished, temporary_name, write_text
from assay.terminal import printable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from torch import Tensor

    from assay.data.core.types import Size, Strings

_CHUNK = 32
_FEW = 1000
"""Fewer files are scanned so quickly that nothing is cached."""
_SMALL = 1 << 25
"""Bytes of files that are decoded as quickly."""
_SETTLED = 2.0
"""Seconds after which a file's times tell whether it was changed."""


class FileScan(NamedTuple):
    """The hash and image size of a file, or why it cannot be used."""

    sha256: str = ""
    size: tuple[int, int] = (0, 0)
    bad: str = ""


def read_bytes(path: str) -> bytes:
    """The contents of a regular file."""
    try:
        # pathlib takes as long as reading a small image does.
        if not stat.S_ISREG(os.stat(path).st_mode):  # noqa: PTH116
            raise ValueError("it is not a regular file")
        with open(path, "rb", buffering=0) as file:  # noqa: PTH123
            content = file.read()
    except OSError as error:
        raise ValueError(error.strerror or str(error)) from error
    if not content:
        raise ValueError("it is empty")
    return content


def scan_files(paths: Strings, take: Callable[[bytes, int], Size]) -> list[FileScan]:
    """Read every file once, by as many threads as there are cores."""

    def look(index: int) -> FileScan:
        try:
            content = read_bytes(paths[index])
            size = take(content, index)
        except ValueError as error:
            return FileScan(bad=str(error))
        return FileScan(hashlib.sha256(content).hexdigest(), size)

    def look_at_some(start: int) -> list[FileScan]:
        return [look(index) for index in range(start, min(start + _CHUNK, len(paths)))]

    pool = ThreadPoolExecutor(os.cpu_count())
    try:
        return [
            one for some in pool.map(look_at_some, range(0, len(paths), _CHUNK)) for one in some
        ]
    finally:
        pool.shutdown(cancel_futures=True)


def scan_images(
    root: Path, paths: Strings, verify: Callable[[bytes, int], tuple[int, int]]
) -> list[FileScan]:
    """Verify every file, and cache the result for intact files."""
    if len(paths) < _FEW:
        return scan_files(paths, verify)
    file = cache_folder() / "images" / f"{_digest(str(root.resolve()))}.json"
    cached: dict[str, FileScan] = {}
    with suppress(OSError, msgspec.MsgspecError):  # it is recreated
        cached = msgspec.json.decode(file.read_bytes(), type=dict[str, FileScan])
    states = _states(root, paths)
    looks = {
        path: cached[state.text]
        for path, state in zip(paths, states, strict=True)
        if state.text in cached
    }
    if new := [path for path in paths if path not in looks]:
        settled = (time.time() - _SETTLED) * 1e9
        looks.update(zip(new, scan_files(new, verify), strict=True))
        to_cache = {
            state.text: looks[path]
            for path, state in zip(paths, states, strict=True)
            if not looks[path].bad and state.changed < settled
        }
        # A home that cannot be written, or is full; a name that is no text: the files are read again.
        with suppress(OSError, UnicodeEncodeError):
            write_text(file, msgspec.json.encode(to_cache).decode())
    return [looks[path] for path in paths]


class _State(NamedTuple):
    """A file's name below its folder, and by what a change of it is known."""

    name: str
    text: str
    changed: int = 0
    num_bytes: int = 0


def _states(root: Path, paths: Strings) -> list[_State]:
    states = []
    for path in paths:
        name = path.removeprefix(f"{root}{os.sep}")
        try:
            # pathlib takes three times as long, for each of what may be a million files.
            found = os.stat(path)  # noqa: PTH116
        except OSError:  # whether it can be read is asked anew each time
            states.append(_State(name, f"{name}:missing"))
            continue
        times = f"{found.st_ino}:{found.st_mtime_ns}:{found.st_ctime_ns}"
        states.append(
            _State(name, f"{name}:{found.st_size}:{times}", found.st_ctime_ns, found.st_size)
        )
    return states


# -- decoded images ----------------------------------------------------------------------------------


@final
class Decoded(msgspec.Struct, frozen=True):
    """What a file of decoded images holds, written at its end.

    Attributes:
        root: Folder of the images.
        form: How they were decoded.
        shape: `[N, C, H, W]`, uint8.
        states: Of the files when they were decoded.
        checksum: Of the pixels and looks.
        looks: At each file.
    """

    root: str
    form: str
    shape: tuple[int, int, int, int]
    states: str
    checksum: str
    looks: list[FileScan]


_LENGTH = 8
"""Bytes at the end of a file that say how long the JSON before them is."""
_SUFFIX = ".pixels"


def can_cache(paths: Strings, num_bytes: int) -> bool:
    """Whether decoding these files takes so long, and so little room, that the images are kept."""
    if not paths or num_bytes > cache_limit():
        return False
    return (
        len(paths) >= _FEW or sum(state.num_bytes for state in _states(Path(), paths)) >= _SMALL
    )


def decode_once(
    root: Path,
    paths: Strings,
    form: str,
    shape: tuple[int, int, int, int],
    decode: Callable[[Tensor, Sequence[int]], list[FileScan]],
    *,
    scaled: bool = False,
) -> tuple[Tensor, list[FileScan]]:
    """Map the decoded images of a folder; the first process that asks decodes them, others wait for it.

    Args:
        root: The folder.
        paths: Its files.
        form: How they are decoded.
        shape: Of all of them, `[N, C, H, W]`.
        decode: Decodes the files at the given positions into a uint8 tensor of that shape.
        scaled: Whether files of another size are scaled to it; otherwise such a set is not kept.

    Raises:
        OSError: The cache folder cannot be written, or is full.
    """
    known = str(root.resolve())
    states = _states(root, paths)
    names = (state.name for state in states)
    name = _digest(
        "\n".join((PIL.__version__, torchvision.__version__, known, form, str(shape), *names))
    )
    file = cache_folder() / "images" / f"{name}{_SUFFIX}"
    digest = _digest("\n".join(state.text for state in states))
    mapped = _map(file, digest, shape)
    if mapped is None:
        file.parent.mkdir(parents=True, exist_ok=True)
        with _lock(file.parent):
            mapped = _map(file, digest, shape)
            if mapped is None:
                meta = Decoded(printable(known), form, shape, digest, "", [])
                return _make(file, meta, states, decode, scaled=scaled)
    return mapped


def _make(
    file: Path,
    meta: Decoded,
    states: Sequence[_State],
    decode: Callable[[Tensor, Sequence[int]], list[FileScan]],
    *,
    scaled: bool,
) -> tuple[Tensor, list[FileScan]]:
    """Decode into a file that appears under its name when all is done."""
    num_bytes = torch.Size(meta.shape).numel()
    remove_unfinished(file.parent)
    # Of a process that was killed: here it is this one's turn.
    remove_unfinished(file.parent, file.name, older_than=0.0)
    temporary = temporary_name(file)
    try:
        with temporary.open("w+b") as opened:
            if hasattr(os, "posix_fallocate"):  # else a full disk would end the process
                os.posix_fallocate(opened.fileno(), 0, num_bytes)
            opened.truncate(num_bytes)
            shared = np.memmap(opened, np.uint8, "r+", shape=meta.shape)
            settled = (time.time() - _SETTLED) * 1e9
            looks = decode(torch.from_numpy(shared), range(len(states)))
            shared.flush()
            # What is changed from here on is this process's own.
            images = _map_privately(temporary, meta.shape)
            fits = scaled or all(look.bad or look.size == meta.shape[2:] for look in looks)
            if fits and all(state.changed < settled for state in states):
                kept = [look._replace(bad=printable(look.bad)) for look in looks]
                sealed = msgspec.structs.replace(
                    meta, checksum=_checksum(images, kept), looks=kept
                )
                end = msgspec.json.encode(sealed)
                opened.seek(num_bytes)
                opened.write(end + len(end).to_bytes(_LENGTH, "big"))
                opened.flush()
                os.fsync(opened.fileno())
                temporary.replace(file)
    finally:
        temporary.unlink(missing_ok=True)
    _make_room(file)
    return images, looks


def _map_privately(file: Path, shape: tuple[int, int, int, int]) -> Tensor:
    # torch's own mapping cannot be handed to a worker that was not forked.
    return torch.from_numpy(np.memmap(file, np.uint8, "c", shape=shape))


def _map(
    file: Path, states: str, shape: tuple[int, int, int, int]
) -> tuple[Tensor, list[FileScan]] | None:
    """Decoded images, where they are there, this user's, whole, and those of the files as they are."""
    # numpy's own, where it was replaced by a shorter one meanwhile
    with suppress(OSError, ValueError):
        meta = read_meta(file)
        if meta is None or (meta.states, meta.shape) != (states, shape):
            return None
        images = _map_privately(file, shape)
        if _checksum(images, meta.looks) == meta.checksum:
            with suppress(OSError):
                os.utime(file)  # what was used last stays longest
            return images, list(meta.looks)
    return None


def read_meta(file: Path) -> Decoded | None:
    """The end of a file of decoded images; None where it is not whole, or another user's.

    Raises:
        OSError: It cannot be read.
    """
    with file.open("rb") as opened:
        found = os.fstat(opened.fileno())
        if hasattr(os, "getuid") and found.st_uid not in (os.getuid(), 0):
            return None
        with suppress(msgspec.MsgspecError, ValueError):
            opened.seek(max(0, found.st_size - _LENGTH))
            length = min(int.from_bytes(opened.read(), "big"), found.st_size)
            opened.seek(max(0, found.st_size - _LENGTH - length))
            meta = msgspec.json.decode(opened.read(length), type=Decoded)
            if torch.Size(meta.shape).numel() + length + _LENGTH == found.st_size:
                return meta
    return None


def _checksum(pixels: Tensor, looks: list[FileScan]) -> str:
    """Changes with any bit; takes hardly longer than reading them."""
    return f"{zlib.crc32(pixels.numpy().data, zlib.crc32(msgspec.json.encode(looks))):08x}"


@contextmanager
def _lock(folder: Path) -> Iterator[None]:
    """Decode one set of images at a time: each takes all cores."""
    if fcntl is None:
        yield
        return
    descriptor = os.open(
        folder / f".{os.getuid()}.lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600
    )
    try:
        with suppress(OSError):  # a file system without locks; each process decodes then
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


@final
@dataclass(frozen=True)
class CachedImages:
    """Decoded images of one folder.

    Attributes:
        file: That holds them.
        root: Folder of the images.
        form: How they were decoded: mode, and the size they are scaled to.
        num_images: How many.
        size: Height and width.
        num_bytes: Of the file.
        used: When a job read it last.
    """

    file: Path
    root: str
    form: str
    num_images: int
    size: tuple[int, int]
    num_bytes: int
    used: str


def list_cached() -> list[CachedImages]:
    """The decoded images of the cache, those that were used last first."""
    found = []
    for file in (cache_folder() / "images").glob(f"*{_SUFFIX}"):
        with suppress(OSError):  # another process has removed it
            meta = read_meta(file)
            state = file.stat()
            if meta:
                root, form, shape = (meta.root, meta.form, meta.shape)
            else:
                root, form, shape = ("", "damaged", (0, 0, 0, 0))
            used = datetime.fromtimestamp(state.st_mtime, UTC).isoformat(timespec="seconds")
            found.append(CachedImages(file, root, form, shape[0], shape[2:], state.st_size, used))
    return sorted(found, key=lambda cached: cached.used, reverse=True)


def clear_cache() -> list[CachedImages]:
    """Remove all of it; jobs that have mapped images keep them."""
    folder = cache_folder() / "images"
    if folder.is_dir():
        with _lock(folder):
            remove_unfinished(folder, older_than=0.0)
    removed = list_cached()
    for cached in removed:
        cached.file.unlink(missing_ok=True)
    return removed


def _make_room(kept: Path) -> None:
    """Remove what was used longest ago, beyond the limit."""
    total = 0
    for cached in sorted(list_cached(), key=lambda cached: cached.file != kept):
        total += cached.num_bytes
        if total > cache_limit() and cached.file != kept:
            with suppress(OSError):  # another user's
                cached.file.unlink()


def _digest(text: str) -> str:
    return hashlib.sha256(os.fsencode(text)).hexdigest()[:32]
