"""What the pages of a Parquet file say that they unfold to: pyarrow makes room for that before it looks.

The footer may say one thing and the pages another; pyarrow believes each where it reads it. The headers of
the pages are in Thrift's compact protocol (doc/specs/thrift-compact-protocol.md of
https://github.com/apache/thrift), their fields in https://github.com/apache/parquet-format, `PageHeader`.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

_LARGEST_PAGE: Final = 256 << 20
"""Bytes of a page of somebody's own table; those who write Parquet make pages of a megabyte."""
_UNCOMPRESSED, _COMPRESSED = 2, 3
"""Fields of a page's header."""
_LONGEST_HEADER: Final = 1 << 16
_DEEPEST: Final = 8
_TRUE, _FALSE, _BYTE, _I16, _I32, _I64, _DOUBLE, _BINARY, _STRUCT = 1, 2, 3, 4, 5, 6, 7, 8, 12
"""Types of fields; a page's header has no others."""


def check_table(path: str | Path) -> None:
    """Refuse a table of somebody's own that has pages as no writer of Parquet makes them.

    Raises:
        ValueError: It has, or is not a Parquet file (as pyarrow says).
        OSError: It cannot be read.
    """
    import pyarrow.parquet as pq  # type: ignore[import-untyped]  # pyarrow ships no types

    with Path(path).open("rb") as file:
        check_pages(file, pq.read_metadata(file), largest_page=_LARGEST_PAGE)


def check_pages(file: BinaryIO, metadata: Any, *, largest_page: int, largest: int | None = None) -> None:
    """Refuse a file whose pages unfold into more than may be.

    Args:
        file: The Parquet file.
        metadata: pyarrow's `FileMetaData` of it.
        largest_page: Bytes of one page out of compression.
        largest: Of all of them; None for any number.

    Raises:
        ValueError: They do, or the pages are not where the footer says.
    """
    total = 0
    for size in page_sizes(file, metadata):
        total += size
        if size > largest_page:
            raise ValueError(f"a page of it holds more than {largest_page >> 20} MiB, which are not read")
        if largest is not None and total > largest:
            raise ValueError(f"it holds more than {largest >> 20} MiB, which are not read")


def page_sizes(file: BinaryIO, metadata: Any) -> Iterator[int]:
    """Bytes of each page out of compression, as its header says.

    Args:
        file: The Parquet file.
        metadata: As for `check_pages`.

    Raises:
        ValueError: The pages are not where the footer says, or lie in each other.
    """
    end_of_file = left = file.seek(0, 2)
    for group in range(metadata.num_row_groups):
        for index in range(metadata.row_group(group).num_columns):
            chunk = metadata.row_group(group).column(index)
            if chunk.num_values <= 0:  # pyarrow reads no page of it
                continue
            start, length = chunk.data_page_offset, chunk.total_compressed_size
            if chunk.dictionary_page_offset:
                start = min(start, chunk.dictionary_page_offset)
            left -= length
            if min(start, length, left) < 0 or start + length > end_of_file:
                raise ValueError("its pages are not where its footer says")
            at = start
            while at < start + length:
                file.seek(at)
                header = _Header(file.read(_LONGEST_HEADER))
                at += header.length + header.sizes[_COMPRESSED]
                yield header.sizes[_UNCOMPRESSED]


class _Header:
    """The header of a page: its length in bytes, and the sizes of the page.

    Read as Thrift's own reader does, numbers cut off at their width and all: where the two part, a file could
    lie.
    """

    def __init__(self, content: bytes) -> None:
        self._content, self.length = content, 0
        self.sizes: dict[int, int] = {}
        try:
            for field, kind in self._fields():
                if field in (_UNCOMPRESSED, _COMPRESSED) and kind == _I32:
                    self.sizes[field] = self._whole(32)
                else:
                    self._skip(kind)
        except IndexError as error:
            raise ValueError("a page of it has no header") from error
        if len(self.sizes) < 2 or min(self.sizes.values()) < 0:
            raise ValueError("a page of it does not say how large it is")

    def _byte(self) -> int:
        self.length += 1
        return self._content[self.length - 1]

    def _number(self) -> int:
        number = shift = 0
        while True:
            byte = self._byte()
            number |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return number
            if shift > 63:
                raise ValueError("a page of it has no header")

    def _whole(self, width: int) -> int:
        number = self._number() & ((1 << width) - 1)
        return (number >> 1) ^ -(number & 1)

    def _fields(self) -> Iterator[tuple[int, int]]:
        field = 0
        while kind := (byte := self._byte()) & 0x0F:
            delta = byte >> 4
            field = (field + delta + 0x8000) % 0x10000 - 0x8000 if delta else self._whole(16)
            yield field, kind

    def _skip(self, kind: int, depth: int = 0) -> None:
        if depth > _DEEPEST:
            raise ValueError("a page of it has no header")
        if kind in (_TRUE, _FALSE):  # of a field, the value is in its kind
            return
        if kind in (_BYTE, _DOUBLE):
            self.length += 1 if kind == _BYTE else 8
        elif kind == _BINARY:
            size = self._number()
            self.length += size
        elif kind == _STRUCT:
            for _, inner in self._fields():
                self._skip(inner, depth + 1)
        elif kind in (_I16, _I32, _I64):
            self._number()
        else:
            raise ValueError("a page of it has a header that is not known")
        if self.length > len(self._content):
            raise IndexError
