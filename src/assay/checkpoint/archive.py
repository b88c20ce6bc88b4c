"""What a checkpoint's zip archive may be, judged before PyTorch's reader sees it.

That reader unpacks compressed entries to whatever size they claim, and its restricted unpickler calls a few
functions that make something large of a small number. The layout is checked strictly, so that no two readers
can take the same bytes for different archives.
"""

from __future__ import annotations

import pickletools
import re
import struct
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, final

if TYPE_CHECKING:
    from collections.abc import Iterable

_LOCAL, _CENTRAL, _END = b"PK\3\4", b"PK\1\2", b"PK\5\6"
_END64, _LOCATOR = b"PK\6\6", b"PK\6\7"
_SENTINEL16, _SENTINEL32 = 0xFFFF, 0xFFFFFFFF
_ENCRYPTED = 1
_ZIP64 = 1
_STORAGE = r"(torch\.)?\w+Storage|torch\.storage\.(Typed|Untyped)Storage"
_DTYPE = r"torch\.(u?int\d+|b?float\d\w*|b?complex\d+|c?half|double|long|short|bool|q\w?u?int\d\w*|bits\w+)"
_NAME = re.compile(
    rf"{_STORAGE}|{_DTYPE}|torch\.(Size|device|serialization\._get_layout)"
    r"|torch\._utils\._rebuild_(tensor(_v[23])?|parameter|qtensor|sparse_tensor|meta_tensor_no_storage)"
    r"|torch\.per_(tensor|channel)_\w+|collections\.(OrderedDict|Counter)|_codecs\.encode"
    r"|(__builtin__|builtins)\.(set|complex)"
)
"""What a pickle of tensors and plain containers names. `bytearray`, which PyTorch would let through, makes
gigabytes of one number."""
_GLOBAL = re.compile(rb"c([\w.]+)\n([\w.]+)\n")


class ArchiveError(ValueError):
    """The bytes are no archive as `torch.save` writes it, or name what a checkpoint has no use for."""


@final
@dataclass(frozen=True)
class _Entry:
    name: str
    header: int
    size: int


def check_archive(file: IO[bytes]) -> None:
    """Refuse what is no archive of tensors and plain containers.

    Time and memory are bounded by the size of the file.

    Args:
        file: Open for reading; afterwards it is at its begin.

    Raises:
        ArchiveError: The message says why, as a sentence without its subject.
    """
    try:
        entries, directory = _entries(file)
        begins = _begins(file, entries, directory)
    except (struct.error, UnicodeDecodeError) as error:
        raise ArchiveError("is no zip archive as PyTorch writes it") from error
    pickles = [entry for entry in entries if entry.name.endswith("/data.pkl")]
    if len(pickles) != 1:
        raise ArchiveError("has no data.pkl, or several")
    file.seek(begins[pickles[0].name])
    _check_names(file.read(pickles[0].size))
    file.seek(0)


def check_weights(file: IO[bytes]) -> None:
    """Refuse what is no file of tensors and plain containers, whether of today's format or that of torch 1.5.

    Time and memory are bounded by the size of the file.

    Args:
        file: Open for reading; afterwards it is at its begin.

    Raises:
        ArchiveError: The message says why, as a sentence without its subject.
    """
    file.seek(0)
    begin = file.read(4)
    file.seek(0)
    if begin == _LOCAL:
        check_archive(file)
        return
    try:  # the number, the version and the system it was written with; the objects; the names of storages
        for _ in range(5):
            _refuse_strange(
                str(value) for code, value, _ in pickletools.genops(file) if code.name == "GLOBAL"
            )
    except ArchiveError:
        raise
    except (ValueError, OverflowError) as error:
        raise ArchiveError("is not a file that torch.save wrote") from error
    file.seek(0)


def _entries(file: IO[bytes]) -> tuple[list[_Entry], int]:
    """The entries by position, and where the list of them begins."""
    number, size, begin, end = _directory(file)
    if begin < 0 or begin + size != end or number > size // 46:
        raise ArchiveError("has a list of entries that does not fit")
    file.seek(begin)
    data, entries, at = file.read(size), [], 0
    for _ in range(number):
        entry, at = _entry(data, at)
        entries.append(entry)
    if at != len(data):
        raise ArchiveError("has a list of entries that does not fit")
    names = {entry.name.lower() for entry in entries}
    if len(names) < len(entries) or len({entry.name.split("/")[0] for entry in entries}) != 1:
        raise ArchiveError("has entries of the same name, or outside its folder")
    return sorted(entries, key=lambda entry: entry.header), begin


def _directory(file: IO[bytes]) -> tuple[int, int, int, int]:
    """Number of entries, size and begin of their list, and what it must end at."""
    length = file.seek(0, 2)
    file.seek(0)
    if file.read(4) != _LOCAL:
        raise ArchiveError("is no zip archive as PyTorch writes it")
    end = length - 22
    file.seek(max(end - 20 - 56, 0))
    tail = file.read()
    mark, disk, first, here, number, size, begin, comment = struct.unpack("<4s4H2IH", tail[-22:])
    if mark != _END or disk or first or here != number or comment:
        raise ArchiveError("is cut short, or is no zip archive as PyTorch writes it")
    if tail[-42:-38] != _LOCATOR:
        return number, size, begin, end
    at, disks = struct.unpack("<8xQI", tail[-42:-22])
    mark, rest, disk, first, here64, number64, size64, begin64 = struct.unpack("<4sQ4x2I4Q", tail[-98:-42])
    fits = (
        at == end - 20 - 56 and mark == _END64 and rest == 44 and disks == 1
        and not disk and not first and here64 == number64
        and number in (number64, _SENTINEL16) and size in (size64, _SENTINEL32)
        and begin in (begin64, _SENTINEL32)
    )  # fmt: skip
    if not fits:
        raise ArchiveError("has two ends that do not agree")
    return number64, size64, begin64, at


def _entry(data: bytes, at: int) -> tuple[_Entry, int]:
    """One entry of the list, and where the next begins."""
    mark, flags, method, packed, size, *lengths, disk, header = struct.unpack(
        "<4s4xHH8xII3HH6xI", data[at : at + 46]
    )
    name_end = at + 46 + lengths[0]
    extra_end = name_end + lengths[1]
    name = data[at + 46 : name_end].decode("utf-8")
    if mark != _CENTRAL or disk:
        raise ArchiveError("has a list of entries that does not fit")
    wide = _wide(data[name_end:extra_end])
    values = []
    for value in (size, packed, header):
        if value == _SENTINEL32:
            if not wide:
                raise ArchiveError(f"does not tell the size of {name!r:.80}")
            value = wide.pop(0)  # noqa: PLW2901 - as the format has it: only what did not fit
        values.append(value)
    size, packed, header = values
    if method or packed != size or flags & _ENCRYPTED:
        raise ArchiveError(f"has a compressed or encrypted entry, {name!r:.80}")
    parts = name.split("/")
    if len(parts) < 2 or "" in parts or ".." in parts or "\\" in name or "\0" in name:
        raise ArchiveError(f"has an entry outside its folder, {name!r:.80}")
    return _Entry(name, header, size), extra_end + lengths[2]


def _wide(extra: bytes) -> list[int]:
    """The sizes and the position that did not fit into 32 bits."""
    found: list[list[int]] = []
    at = 0
    while at < len(extra):
        kind, length = struct.unpack("<HH", extra[at : at + 4])
        if kind == _ZIP64:
            found.append(list(struct.unpack(f"<{length // 8}Q", extra[at + 4 : at + 4 + length // 8 * 8])))
        at += 4 + length
    if at != len(extra) or len(found) > 1:
        raise ArchiveError("has an entry with two sizes")
    return found[0] if found else []


def _begins(file: IO[bytes], entries: list[_Entry], directory: int) -> dict[str, int]:
    """Where the content of each entry begins; entries must not overlap."""
    begins, free = {}, 0
    for entry in entries:
        file.seek(entry.header)
        mark, flags, method, name, extra = struct.unpack("<4s2xHH16xHH", file.read(30))
        begin = entry.header + 30 + name + extra
        same = (
            mark == _LOCAL
            and not method
            and not flags & _ENCRYPTED
            and file.read(name) == entry.name.encode()
        )
        if not same or entry.header < free or begin + entry.size > directory:
            raise ArchiveError(f"has entries that overlap or disagree, such as {entry.name!r:.80}")
        begins[entry.name], free = begin, begin + entry.size
    return begins


def _check_names(pickled: bytes) -> None:
    """Refuse a pickle that names what tensors and plain containers do not need."""
    # Whatever the pickle names stands in it as such text: mostly this look, which is fast, suffices.
    if all(_NAME.fullmatch(b".".join(pair).decode()) for pair in _GLOBAL.findall(pickled)):
        return
    try:  # some text may look like a name
        named = [str(value) for code, value, _ in pickletools.genops(pickled) if code.name == "GLOBAL"]
    except (ValueError, OverflowError) as error:
        raise ArchiveError("holds what is no pickle") from error
    _refuse_strange(named)


def _refuse_strange(named: Iterable[str]) -> None:
    strange = next((name for one in named if not _NAME.fullmatch(name := one.replace(" ", "."))), "")
    if strange:
        raise ArchiveError(f"names {strange:.80}, which is no tensor and no plain container")
