"""Picture files are read once: what is found in them is kept in the user's cache, and what is decoded too."""

from __future__ import annotations

import errno
import hashlib
import io
import os
import shutil
import stat
import time
import zlib
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Literal, NamedTuple, TypeVar, final

import msgspec
import numpy as np
import PIL
import torch
import torchvision  # type: ignore[import-untyped]  # torchvision ships no types

from assay.data.core.source_files import cache_folder, cache_limit
from assay.files.atomic import fcntl, remove_unfinished, temporary_name, write_text
from assay.terminal import printable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from concurrent.futures import Future

    from numpy.typing import NDArray
    from torch import Tensor

    from assay.data.core.types import Strings

    Decode = Callable[[bytes], tuple["FileScan", Tensor]]
    """What is found in a file, and its pixels `[C, H, W]`, uint8."""

T = TypeVar("T")

_CHUNK = 32
_CHUNK_BYTES = 1 << 22
"""Files, and bytes of their pixels, that a thread decodes at a time."""
_FEW = 1000
"""Fewer files are scanned so quickly that nothing is cached."""
_SMALL = 1 << 25
"""Bytes of files that are decoded as quickly."""
_SETTLED = 2.0
"""Seconds after which a file's times tell whether it was changed."""


class FileScan(NamedTuple):
    """The hash and image size of a file, or why it cannot be used; of a mask the pixels of each value."""

    sha256: str = ""
    size: tuple[int, int] = (0, 0)
    bad: str = ""
    values: tuple[tuple[int, int], ...] = ()


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


def scan_files(paths: Strings, scan: Callable[[bytes], FileScan]) -> list[FileScan]:
    """Read every file once, by as many threads as there are cores."""
    return [found for found, _ in _in_order(paths, lambda content: (scan(content), None))]


def _in_order(
    paths: Strings, take: Callable[[bytes], tuple[FileScan, T]], chunk: int = _CHUNK
) -> Iterator[tuple[FileScan, T | None]]:
    """What is found in each file; as many threads as there are cores are a few files ahead."""

    def look(path: str) -> tuple[FileScan, T | None]:
        try:
            content = read_bytes(path)
            found, taken = take(content)
        except ValueError as error:
            return FileScan(bad=str(error)), None
        return found._replace(sha256=hashlib.sha256(content).hexdigest()), taken

    def look_at_some(some: Strings) -> list[tuple[FileScan, T | None]]:
        return [look(path) for path in some]

    threads = os.cpu_count() or 1
    pool = ThreadPoolExecutor(threads)
    pending: deque[Future[list[tuple[FileScan, T | None]]]] = deque()
    try:
        for start in range(0, len(paths), chunk):
            pending.append(pool.submit(look_at_some, paths[start : start + chunk]))
            if len(pending) > 2 * threads:
                yield from pending.popleft().result()
        while pending:
            yield from pending.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)


def scan_images(
    root: Path, paths: Strings, verify: Callable[[bytes], tuple[int, int]]
) -> list[FileScan]:
    """Verify every file, and cache the result for intact files."""

    def scan(content: bytes) -> FileScan:
        return FileScan(size=verify(content))

    if len(paths) < _FEW:
        return scan_files(paths, scan)
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
        looks.update(zip(new, scan_files(new, scan), strict=True))
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
        channels: Of each.
        states: Of the files when they were decoded.
        checksum: Of the pixels, sizes and looks.
        sizes: Height and width of each image as it is here; zeros where it could not be decoded.
        looks: At each file.
    """

    root: str
    form: str
    channels: int
    states: str
    checksum: str
    sizes: list[tuple[int, int]]
    looks: list[FileScan]

    @property
    def num_bytes(self) -> int:
        """Of the pixels."""
        return self.channels * sum(height * width for height, width in self.sizes)


_LENGTH = 8
"""Bytes at the end of a file that say how long the JSON before them is."""
_SUFFIX = ".pixels"


@final
class Pictures:
    """Decoded images `[C, H, W]`, uint8, one after another in a file or in memory.

    Attributes:
        num_bytes: Of all of them.
        size: Height and width, where these are the same for all.
    """

    def __init__(
        self, pixels: Path | NDArray[np.uint8], channels: int, sizes: Sequence[tuple[int, int]]
    ) -> None:
        self._channels = channels
        self._sizes = np.array(sizes, np.int64).reshape(-1, 2)
        self._ends = self._sizes.prod(1).cumsum() * channels
        self.num_bytes = int(self._ends[-1])
        self.size = common_size(sizes)
        self._source = pixels
        self._pixels = self._map("r")
        self._inode = 0
        if isinstance(pixels, Path):
            self._inode = pixels.stat().st_ino

    def _map(self, mode: Literal["r", "c"]) -> NDArray[np.uint8]:
        if isinstance(self._source, Path):
            return np.memmap(self._source, np.uint8, mode, shape=(self.num_bytes,))
        return self._source

    def __getitem__(self, index: int) -> Tensor:
        height, width = self._sizes[index].tolist()
        end = int(self._ends[index])
        pixels = np.array(self._pixels[end - self._channels * height * width : end])
        return torch.from_numpy(pixels).view(self._channels, height, width)

    def as_tensor(self) -> Tensor:
        """All that could be decoded, `[N, C, H, W]`, where they have one size; changes are this process's."""
        # torch's own mapping cannot be handed to a worker that was not forked.
        pixels = torch.from_numpy(self._map("c"))
        return pixels.view(-1, self._channels, *(self.size or (0, 0)))

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_pixels": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        # A worker that was not forked maps the file itself.
        vars(self).update(state)
        self._pixels = self._map("r")
        if isinstance(self._source, Path) and self._source.stat().st_ino != self._inode:
            raise OSError(errno.ESTALE, os.strerror(errno.ESTALE), str(self._source))


def common_size(sizes: Iterable[tuple[int, int]]) -> tuple[int, int] | None:
    """The size of all images that could be decoded; None where they differ."""
    found = set(sizes) - {(0, 0)}
    if len(found) == 1:
        return found.pop()
    return None


def takes_long(paths: Strings) -> bool:
    """Whether decoding these files takes so long that the images are kept."""
    if not paths:
        return False
    return (
        len(paths) >= _FEW or sum(state.num_bytes for state in _states(Path(), paths)) >= _SMALL
    )


def decode_in_memory(
    paths: Strings, channels: int, decode: Decode, picture_bytes: float
) -> tuple[Pictures, list[FileScan]]:
    """Decode files into memory; the arguments are those of `decode_once`."""
    buffer = io.BytesIO()
    looks, sizes = _write_pixels(buffer, paths, decode, picture_bytes)
    return Pictures(np.frombuffer(buffer.getbuffer(), np.uint8), channels, sizes), looks


def _write_pixels(
    opened: IO[bytes], paths: Strings, decode: Decode, picture_bytes: float
) -> tuple[list[FileScan], list[tuple[int, int]]]:
    """Decode files one after another into an open one; a look at each, and the size of its pixels."""
    looks: list[FileScan] = []
    sizes: list[tuple[int, int]] = []
    chunk = max(1, min(_CHUNK, int(_CHUNK_BYTES // max(1.0, picture_bytes))))
    for found, pixels in _in_order(paths, decode, chunk):
        looks.append(found)
        if pixels is None:
            sizes.append((0, 0))
            continue
        sizes.append((pixels.shape[1], pixels.shape[2]))
        opened.write(pixels.contiguous().numpy().data)
    return looks, sizes


def decode_once(
    root: Path,
    paths: Strings,
    form: str,
    channels: int,
    decode: Decode,
    *,
    picture_bytes: float,
) -> tuple[Pictures, list[FileScan]]:
    """Map the decoded images of a folder; the first process that asks decodes them, others wait for it.

    Args:
        root: The folder.
        paths: Its files.
        form: How they are decoded.
        channels: Of each image.
        decode: Decodes a file's content.
        picture_bytes: Of the pixels of an image, about.

    Raises:
        OSError: The cache folder cannot be written, or has no room for them.
    """
    needed = picture_bytes * len(paths)
    if needed > cache_limit():
        limit = f"ASSAY_CACHE_GB={cache_limit() / 1e9:g}"
        raise OSError(f"they take {needed / 1e9:.1f} GB, more than {limit}")
    known = str(root.resolve())
    states = _states(root, paths)
    names = (state.name for state in states)
    name = _digest("\n".join((PIL.__version__, torchvision.__version__, known, form, *names)))
    file = cache_folder() / "images" / f"{name}{_SUFFIX}"
    digest = _digest("\n".join(state.text for state in states))
    mapped = _map(file, digest)
    if mapped is None:
        file.parent.mkdir(parents=True, exist_ok=True)
        with _lock(file.parent):
            mapped = _map(file, digest)
            if mapped is None:
                remove_unfinished(file.parent)
                # Of a process that was killed: here it is this one's turn.
                remove_unfinished(file.parent, file.name, older_than=0.0)
                if shutil.disk_usage(file.parent).free < needed:
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(file.parent))
                meta = Decoded(printable(known), form, channels, digest, "", [], [])
                return _make(file, meta, states, paths, decode, picture_bytes=picture_bytes)
    return mapped


def _make(
    file: Path,
    meta: Decoded,
    states: Sequence[_State],
    paths: Strings,
    decode: Decode,
    *,
    picture_bytes: float,
) -> tuple[Pictures, list[FileScan]]:
    """Decode into a file that appears under its name when all is done."""
    temporary = temporary_name(file)
    settled = (time.time() - _SETTLED) * 1e9
    try:
        with temporary.open("w+b") as opened:
            looks, sizes = _write_pixels(opened, paths, decode, picture_bytes)
            opened.flush()
            printed = [look._replace(bad=printable(look.bad)) for look in looks]
            meta = msgspec.structs.replace(meta, sizes=sizes, looks=printed)
            pixels: NDArray[np.uint8] = np.zeros(0, np.uint8)
            if meta.num_bytes:
                # What is changed in it is this process's own.
                pixels = np.memmap(temporary, np.uint8, "c", shape=(meta.num_bytes,))
            if not meta.num_bytes or any(state.changed >= settled for state in states):
                return Pictures(pixels, meta.channels, sizes), looks
            meta = msgspec.structs.replace(meta, checksum=_checksum(pixels, meta))
            end = msgspec.json.encode(meta)
            opened.write(end + len(end).to_bytes(_LENGTH, "big"))
            opened.flush()
            os.fsync(opened.fileno())
            temporary.replace(file)
    finally:
        temporary.unlink(missing_ok=True)
    _make_room(file)
    return Pictures(file, meta.channels, sizes), looks


def _map(file: Path, states: str) -> tuple[Pictures, list[FileScan]] | None:
    """Decoded images, where they are there, this user's, whole, and those of the files as they are."""
    # numpy's own, where it was replaced by a shorter one meanwhile
    with suppress(OSError, ValueError):
        meta = read_meta(file)
        if meta is None or meta.states != states:
            return None
        pixels = np.memmap(file, np.uint8, "r", shape=(meta.num_bytes,))
        if _checksum(pixels, meta) == meta.checksum:
            with suppress(OSError):
                os.utime(file)  # what was used last stays longest
            return Pictures(file, meta.channels, meta.sizes), list(meta.looks)
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
            if meta.num_bytes + length + _LENGTH == found.st_size:
                return meta
    return None


def _checksum(pixels: NDArray[np.uint8], meta: Decoded) -> str:
    """Changes with any bit; takes hardly longer than reading them."""
    start = zlib.crc32(msgspec.json.encode((meta.sizes, meta.looks)))
    return f"{zlib.crc32(pixels.data, start):08x}"


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
        size: Height and width; zeros where they differ.
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
            used = datetime.fromtimestamp(state.st_mtime, UTC).isoformat(timespec="seconds")
            if meta is None:
                meta = Decoded("", "damaged", 0, "", "", [], [])
            told = meta.root, meta.form, len(meta.sizes), common_size(meta.sizes) or (0, 0)
            found.append(CachedImages(file, *told, state.st_size, used))
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
