"""What a checkpoint's zip archive may be, judged before PyTorch's reader sees it.

That reader unpacks compressed entries to whatever size they claim, and its restricted unpickler calls a few
functions that make something large of a small number. Here `zipfile` reads the archive; what it leaves
unchecked is compared to the byte, so that PyTorch's reader cannot take the file for another archive.
"""

from __future__ import annotations

import io
import pickletools
import re
import struct
import zipfile
from typing import IO

_LOCAL, _END, _END64, _LOCATOR = b"PK\3\4", b"PK\5\6", b"PK\6\6", b"PK\6\7"
_MAX16, _MAX32 = 0xFFFF, 0xFFFFFFFF
_ENCRYPTED, _FOLDER = 1, 0x10
_PART = r"(?!\.\.?(/|\Z))[^/\\\0]+"
_PATH = re.compile(rf"({_PART})(/{_PART})+")
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


class ArchiveError(ValueError):
    """The bytes are not an archive as `torch.save` writes it, or name what a checkpoint has no use for."""


def check_archive(file: IO[bytes]) -> None:
    """Refuse what is not an archive of tensors and plain containers.

    Time and memory are bounded by the size of the file.

    Args:
        file: Open for reading; afterwards it is at its begin.

    Raises:
        ArchiveError: The message says why, as a sentence without its subject.
    """
    try:
        contents = _contents(file, *_entries(file))
    except (zipfile.BadZipFile, NotImplementedError, UnicodeDecodeError, struct.error) as error:
        raise ArchiveError("is cut short, or is not a zip archive as PyTorch writes it") from error
    pickles = [content for name, content in contents.items() if name.endswith("/data.pkl")]
    if len(pickles) != 1:
        raise ArchiveError("has no data.pkl, or several")
    begin, size = pickles[0]
    file.seek(begin)
    _check_names(io.BytesIO(file.read(size)))
    file.seek(0)


def check_weights(file: IO[bytes]) -> None:
    """As `check_archive`, but takes the format of torch 1.5 as well: pickles, and the storages behind them.

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
    for _ in range(5):  # the number, the version, the system it was written with; the objects; the storages
        _check_names(file)
    file.seek(0)


def _entries(file: IO[bytes]) -> tuple[list[zipfile.ZipInfo], int]:
    """The entries by position, and where the list of them begins.

    What ends the file must be what their number, and the size and place of the list, come to.
    """
    length = file.seek(0, 2)
    with zipfile.ZipFile(file, metadata_encoding="utf-8") as archive:
        entries, begin = archive.infolist(), archive.start_dir
    file.seek(max(length - 98, 0))
    tail = file.read()
    wide = tail[-42:-38] == _LOCATOR
    end = length - (98 if wide else 22)
    count, size = len(entries), end - begin
    counts = [min(count, _MAX16)] * 2
    expected = struct.pack("<4s4x2H2I2x", _END, *counts, min(size, _MAX32), min(begin, _MAX32))
    if wide:
        versions = tail[-86:-82]
        end64 = struct.pack("<4sQ4s8x4Q", _END64, 44, versions, count, count, size, begin)
        expected = end64 + struct.pack("<4s4xQI", _LOCATOR, end, 1) + expected
    if not tail.endswith(expected):
        raise ArchiveError("is cut short, or has an end that does not agree with its list of entries")
    return sorted(entries, key=lambda entry: entry.header_offset), begin


def _contents(file: IO[bytes], entries: list[zipfile.ZipInfo], end: int) -> dict[str, tuple[int, int]]:
    """Where the content of each entry begins, and its size; nothing may overlap."""
    contents: dict[str, tuple[int, int]] = {}
    free = 0
    for entry in entries:
        name, start, size = entry.orig_filename, entry.header_offset, entry.file_size
        if entry.compress_type or entry.compress_size != size or entry.flag_bits & _ENCRYPTED:
            raise ArchiveError(f"has a compressed or encrypted entry, {name!r:.80}")
        # Of a folder PyTorch's reader reads nothing, and takes memory that was never written for its content.
        if entry.external_attr & _FOLDER or not _PATH.fullmatch(name):
            raise ArchiveError(f"has an entry that is a folder or outside of its own, {name!r:.80}")
        file.seek(min(start, end))
        mark, flags, method, *lengths = struct.unpack("<4s2xHH16xHH", file.read(30))
        same = mark == _LOCAL and not method and not flags & _ENCRYPTED
        same = same and file.read(lengths[0]) == name.encode() and _MAX32 not in (start, size)
        begin = start + 30 + sum(lengths)
        if not same or start < free or begin + size > end or (start and not contents):
            raise ArchiveError(f"has entries that overlap or disagree, such as {name!r:.80}")
        contents[name], free = (begin, size), begin + size
    if (
        len({name.lower() for name in contents}) < len(entries)
        or len({name.split("/")[0] for name in contents}) != 1
    ):
        raise ArchiveError("has entries of the same name, or in several folders")
    return contents


def _check_names(pickled: IO[bytes]) -> None:
    try:
        named = [str(value) for code, value, _ in pickletools.genops(pickled) if code.name == "GLOBAL"]
    except (ValueError, OverflowError, MemoryError) as error:
        raise ArchiveError("is not a file that torch.save wrote") from error
    strange = next((name for one in named if not _NAME.fullmatch(name := one.replace(" ", "."))), "")
    if strange:
        raise ArchiveError(f"names {strange!r:.80}, which is neither a tensor nor a plain container")
