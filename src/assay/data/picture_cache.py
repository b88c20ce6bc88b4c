"""Picture files are read once: what is found in them is kept in the user's cache, and what is decoded too."""

from __future__ import annotations

import hashlib
import os
import stat
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, final

import msgspec
import PIL
import torch
import torchvision  # type: ignore[import-untyped]  # torchvision ships no types

from assay.data.source_files import cache_folder, cache_limit
from assay.files.atomic import remove_unfinished, temporary_name, write_text
from assay.record.run_lock import fcntl

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from torch import Tensor

_CHUNK: Final = 32
_FEW: Final = 1000
"""Fewer files are scanned so quickly that nothing is cached."""
_SMALL: Final = 1 << 25
"""Bytes of files that are decoded as quickly."""
_SETTLED: Final = 2.0
"""Seconds after which a file's times tell whether it was changed."""


class FileScan(NamedTuple):
    """The hash and image size of a file, or why it cannot be used."""

    sha256: str = ""
    size: tuple[int, int] = (0, 0)
    bad: str = ""


def read_bytes(path: str) -> bytes:
    """The contents of a regular file."""
    try:
        # pathlib takes as long as reading a small picture does.
        if not stat.S_ISREG(os.stat(path).st_mode):  # noqa: PTH116
            raise ValueError("it is not a regular file")
        with open(path, "rb", buffering=0) as file:  # noqa: PTH123
            content = file.read()
    except OSError as error:
        raise ValueError(error.strerror or str(error)) from error
    if not content:
        raise ValueError("it is empty")
    return content


def scan_files(paths: Sequence[str], take: Callable[[bytes, int], tuple[int, int]]) -> list[FileScan]:
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
        return [one for some in pool.map(look_at_some, range(0, len(paths), _CHUNK)) for one in some]
    finally:
        pool.shutdown(cancel_futures=True)


def scan_images(
    root: Path, paths: Sequence[str], verify: Callable[[bytes, int], tuple[int, int]]
) -> list[FileScan]:
    """Verify every file, and cache the result for intact files."""
    if len(paths) < _FEW:
        return scan_files(paths, verify)
    file = cache_folder() / "pictures" / f"{_digest(str(root.resolve()))}.json"
    cached: dict[str, FileScan] = {}
    with suppress(OSError, msgspec.MsgspecError):  # it is recreated
        cached = msgspec.json.decode(file.read_bytes(), type=dict[str, FileScan])
    states = _states(root, paths)
    looks = {
        path: cached[state.text] for path, state in zip(paths, states, strict=True) if state.text in cached
    }
    if new := [path for path in paths if path not in looks]:
        settled = (time.time() - _SETTLED) * 1e9
        looks.update(zip(new, scan_files(new, verify), strict=True))
        to_cache = {
            state.text: looks[path]
            for path, state in zip(paths, states, strict=True)
            if state.text and not looks[path].bad and state.changed < settled
        }
        with suppress(OSError):  # a home that cannot be written, or is full: the files are read again
            write_text(file, msgspec.json.encode(to_cache).decode())
    return [looks[path] for path in paths]


class _State(NamedTuple):
    """A file's name, and by what a change of it is known."""

    text: str = ""
    changed: int = 0
    num_bytes: int = 0


def _states(root: Path, paths: Sequence[str]) -> list[_State]:
    prefix, states = f"{root}{os.sep}", []
    for path in paths:
        try:
            # pathlib takes three times as long, for each of what may be a million files.
            found = os.stat(path)  # noqa: PTH116
        except OSError:
            states.append(_State())
            continue
        times = f"{found.st_ino}:{found.st_mtime_ns}:{found.st_ctime_ns}"
        text = f"{path.removeprefix(prefix)}:{found.st_size}:{times}"
        states.append(_State(text, found.st_ctime_ns, found.st_size))
    return states


# -- decoded pictures ----------------------------------------------------------------------------------


@final
class Decoded(msgspec.Struct, frozen=True):
    """What a file of decoded pictures holds, written at its end.

    Attributes:
        root: Folder of the pictures.
        form: How they were decoded.
        shape: `[N, C, H, W]`, uint8.
        states: Of the files when they were decoded.
        checksum: Of the pixels.
        looks: At each file.
    """

    root: str
    form: str
    shape: tuple[int, int, int, int]
    states: str
    checksum: str
    looks: list[FileScan]


_LENGTH: Final = 8
"""Bytes at the end of a file that say how long the JSON before them is."""
_SUFFIX: Final = ".pixels"
_BLOCK: Final = 1 << 16


def can_cache(paths: Sequence[str], num_bytes: int) -> bool:
    """Whether decoding these files takes so long, and so little room, that the pictures are kept."""
    if not paths or num_bytes > cache_limit():
        return False
    return len(paths) >= _FEW or sum(state.num_bytes for state in _states(Path(), paths)) >= _SMALL


def decode_once(
    root: Path,
    paths: Sequence[str],
    form: str,
    shape: tuple[int, int, int, int],
    decode: Callable[[Tensor, Sequence[int]], list[FileScan]],
) -> tuple[Tensor, list[FileScan]]:
    """Map the decoded pictures of a folder; the first process that asks decodes them, others wait for it.

    Args:
        root: The folder.
        paths: Its files.
        form: How they are decoded.
        shape: Of all of them, `[N, C, H, W]`.
        decode: Decodes the files at the given positions into a uint8 tensor of that shape.

    Raises:
        OSError: The cache folder cannot be written, or is full.
    """
    known = str(root.resolve())
    name = _digest("\n".join((PIL.__version__, torchvision.__version__, known, form, str(shape), *paths)))
    file, states = cache_folder() / "pictures" / f"{name}{_SUFFIX}", _states(root, paths)
    digest = _digest("\n".join(state.text for state in states))
    mapped = _map(file, digest, shape)
    if mapped is None:
        file.parent.mkdir(parents=True, exist_ok=True)
        with _lock(file.parent):
            mapped = _map(file, digest, shape)
            if mapped is None:
                return _make(file, Decoded(known, form, shape, digest, "", []), states, decode)
    images, looks = mapped
    if bad := [position for position, look in enumerate(looks) if look.bad]:  # which may have been mended
        for position, look in zip(bad, decode(images, bad), strict=True):
            looks[position] = look
    return images, looks


def _make(
    file: Path,
    meta: Decoded,
    states: Sequence[_State],
    decode: Callable[[Tensor, Sequence[int]], list[FileScan]],
) -> tuple[Tensor, list[FileScan]]:
    """Decode into a file that appears under its name when all is done."""
    num_bytes = torch.Size(meta.shape).numel()
    remove_unfinished(file.parent)
    remove_unfinished(
        file.parent, file.name, older_than=0.0
    )  # of a process that was killed: here it is this one's turn
    temporary = temporary_name(file)
    try:
        with temporary.open("w+b") as opened:
            if hasattr(os, "posix_fallocate"):  # else a full disk would end the process
                os.posix_fallocate(opened.fileno(), 0, num_bytes)
            opened.truncate(num_bytes)
            images = torch.from_file(str(temporary), shared=True, size=num_bytes, dtype=torch.uint8)
            settled = (time.time() - _SETTLED) * 1e9
            looks = decode(images.view(meta.shape), range(len(states)))
            if all(state.text and state.changed < settled for state in states):
                sealed = msgspec.structs.replace(meta, checksum=_checksum(images), looks=looks)
                end = msgspec.json.encode(sealed)
                opened.seek(num_bytes)
                opened.write(end + len(end).to_bytes(_LENGTH, "big"))
                opened.flush()
                os.fsync(opened.fileno())
                temporary.replace(file)
    finally:
        temporary.unlink(missing_ok=True)
    _make_room(file)
    return images.view(meta.shape), looks


def _map(file: Path, states: str, shape: tuple[int, int, int, int]) -> tuple[Tensor, list[FileScan]] | None:
    """Decoded pictures, where they are there, this user's, whole, and those of the files as they are."""
    with suppress(OSError, RuntimeError):  # torch's own, where it was removed meanwhile
        meta = read_meta(file)
        if meta is None or (meta.states, meta.shape) != (states, shape):
            return None
        size = torch.Size(shape).numel()
        images = torch.from_file(str(file), shared=False, size=size, dtype=torch.uint8)
        if _checksum(images) == meta.checksum:
            with suppress(OSError):
                os.utime(file)  # what was used last stays longest
            return images.view(shape), list(meta.looks)
    return None


def read_meta(file: Path) -> Decoded | None:
    """The end of a file of decoded pictures; None where it is not whole, or another user's.

    Raises:
        OSError: It cannot be read.
    """
    with file.open("rb") as opened:
        found = os.fstat(opened.fileno())
        if hasattr(os, "getuid") and found.st_uid not in (os.getuid(), 0):
            return None
        if found.st_size < _LENGTH:
            return None
        opened.seek(-_LENGTH, os.SEEK_END)
        length = int.from_bytes(opened.read(), "big")
        if length > found.st_size - _LENGTH:
            return None
        opened.seek(-_LENGTH - length, os.SEEK_END)
        with suppress(msgspec.MsgspecError, UnicodeDecodeError):
            meta = msgspec.json.decode(opened.read(length), type=Decoded)
            if torch.Size(meta.shape).numel() + length + _LENGTH == found.st_size:
                return meta
    return None


def _checksum(pixels: Tensor) -> str:
    """Changes with any bit; takes hardly longer than reading them."""
    whole = len(pixels) // 8 * 8
    blocks = pixels[:whole].view(torch.int64).split(_BLOCK)  # type: ignore[no-untyped-call]  # of torch's
    sums = torch.tensor([int(block.sum()) for block in blocks])
    return hashlib.sha256(sums.numpy().tobytes() + pixels[whole:].numpy().tobytes()).hexdigest()


@contextmanager
def _lock(folder: Path) -> Iterator[None]:
    """Decode one set of pictures at a time: each takes all cores."""
    with (folder / ".lock").open("wb") as file:
        if fcntl is not None:
            with suppress(OSError):  # a file system without locks; each process decodes then
                fcntl.flock(file.fileno(), fcntl.LOCK_EX)
        yield


@final
@dataclass(frozen=True)
class CachedPictures:
    """Decoded pictures of one folder.

    Attributes:
        file: That holds them.
        root: Folder of the pictures.
        form: How they were decoded: mode, and the size they are scaled to.
        num_pictures: How many.
        size: Height and width.
        num_bytes: Of the file.
        used: When a job read it last.
    """

    file: Path
    root: str
    form: str
    num_pictures: int
    size: tuple[int, int]
    num_bytes: int
    used: str


def list_cached() -> list[CachedPictures]:
    """The decoded pictures of the cache, those that were used last first."""
    found = []
    for file in (cache_folder() / "pictures").glob(f"*{_SUFFIX}"):
        with suppress(OSError):  # another process has removed it
            meta, state = read_meta(file), file.stat()
            root, form, shape = (meta.root, meta.form, meta.shape) if meta else ("", "damaged", (0, 0, 0, 0))
            used = datetime.fromtimestamp(state.st_mtime, UTC).isoformat(timespec="seconds")
            found.append(CachedPictures(file, root, form, shape[0], shape[2:], state.st_size, used))
    return sorted(found, key=lambda cached: cached.used, reverse=True)


def clear_cache() -> list[CachedPictures]:
    """Remove all of it; jobs that have mapped pictures keep them."""
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
            cached.file.unlink(missing_ok=True)


def _digest(text: str) -> str:
    return hashlib.sha256(os.fsencode(text)).hexdigest()[:32]
