"""Parquet files of a run, which may be somebody else's: a few bytes may stand for more than memory holds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]  # pyarrow ships no types

_KNOWN: Final = {"PLAIN", "RLE", "BIT_PACKED", "PLAIN_DICTIONARY", "RLE_DICTIONARY"}
"""Encodings in which a text is as long in the file as it is, or is one of a dictionary."""


def read_texts(content: bytes, largest: int) -> pa.Table:
    """Read a file whose columns of text may repeat a long text many times.

    Args:
        content: Of the file.
        largest: Bytes of text, and of pages out of compression, from which on it is not read.

    Returns:
        The table, with the types of its schema.

    Raises:
        ValueError: It would unfold into more, or it is not a Parquet file (as pyarrow says).
        OSError: It is damaged.
    """
    import pyarrow as pa
    import pyarrow.compute as pc  # type: ignore[import-untyped]  # pyarrow ships no types
    import pyarrow.parquet as pq  # type: ignore[import-untyped]  # pyarrow ships no types

    file = pq.ParquetFile(pa.BufferReader(content))
    schema, about = file.schema_arrow, file.metadata
    groups = [about.row_group(index) for index in range(about.num_row_groups)]
    chunks = [group.column(index) for group in groups for index in range(group.num_columns)]
    if others := {name for chunk in chunks for name in chunk.encodings} - _KNOWN:
        raise ValueError(f"it is encoded as {min(others)}, which is not read")
    _check(sum(chunk.total_uncompressed_size for chunk in chunks), largest)
    texts = [field.name for field in schema if field.type in (pa.string(), pa.binary())]
    table = pq.ParquetFile(pa.BufferReader(content), read_dictionary=texts).read()
    parts = [part for name in texts for part in table[name].chunks]
    sizes = [pc.sum(pc.binary_length(part.dictionary).take(part.indices)).as_py() or 0 for part in parts]
    _check(sum(sizes), largest)
    return table.cast(schema)


def _check(size: int, largest: int) -> None:
    if size > largest:
        raise ValueError(f"it holds {size >> 20:,} MiB; more than {largest >> 20} MiB are not read")
