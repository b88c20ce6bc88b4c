"""Parquet files of a run, which may be somebody else's: a few bytes may stand for more than memory holds."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from assay.files.atomic import write_bytes

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    import pyarrow as pa  # type: ignore[import-untyped]  # pyarrow ships no types

_METADATA: Final = b"assay"
_KNOWN: Final = {"PLAIN", "RLE", "BIT_PACKED", "PLAIN_DICTIONARY", "RLE_DICTIONARY"}
"""Encodings in which a text is as long in the file as it is, or is one of a dictionary."""


def write(path: Path, columns: Mapping[str, Any], about: Mapping[str, Any]) -> None:
    """Write a file, whole or not at all.

    Args:
        path: The file.
        columns: Arrow arrays by name.
        about: JSON, `schema_version` among it; kept under `assay` in the schema's metadata.

    Raises:
        OSError: It cannot be written; what was there before still stands.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq  # type: ignore[import-untyped]  # pyarrow ships no types

    table = pa.table(dict(columns)).replace_schema_metadata({_METADATA: json.dumps(about).encode()})
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression="zstd", use_dictionary=False)
    write_bytes(path, sink.getvalue().to_pybytes())


def opened(content: bytes, version: int, what: str) -> tuple[pa.Schema, int, dict[str, Any]]:
    """Look at a file of `write` before anything of it is read.

    Args:
        content: Of the file.
        version: Its `schema_version`.
        what: It holds, for messages.

    Returns:
        Its columns, how many rows it has, and what is written about it.

    Raises:
        ValueError: It is another file, or of another version.
        OSError: It is damaged.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    file = pq.ParquetFile(pa.BufferReader(content))
    about = json.loads((file.schema_arrow.metadata or {}).get(_METADATA, b"null"))
    if not isinstance(about, dict):
        raise ValueError(f"it is not a file of {what}")
    if (found := about.get("schema_version")) != version:
        raise ValueError(f"it has schema version {found!r}; this assay reads {version}")
    return file.schema_arrow, file.metadata.num_rows, about


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
    import pyarrow.parquet as pq

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
