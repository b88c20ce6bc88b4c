"""Parquet files of a run, which may be somebody else's: a few bytes may stand for more than memory holds."""

from __future__ import annotations

import io
import json
from typing import TYPE_CHECKING, Any, Final

from assay.files.atomic import write_bytes
from assay.files.parquet_pages import check_pages

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    import pyarrow as pa  # type: ignore[import-untyped]  # pyarrow ships no types

_METADATA: Final = b"assay"
_KNOWN: Final = {"PLAIN", "RLE", "BIT_PACKED", "PLAIN_DICTIONARY", "RLE_DICTIONARY"}
"""Encodings in which a text is as long in the file as it is, or is one of a dictionary."""
UNREADABLE: Final = (OSError, ValueError, MemoryError)
"""What pyarrow raises of a damaged file."""
_AT_A_TIME: Final = 1 << 18
"""Numbers of a column that are read at a time."""


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
    """Read a file whose columns of text may repeat a long text many times, and whose footer may lie.

    It is read some rows at a time: of a whole file, pyarrow allocates as much as the footer says.

    Args:
        content: Of the file.
        largest: Bytes of text, and of pages out of compression, from which on it is not read.

    Returns:
        The table, with the types of its schema.

    Raises:
        ValueError: It would unfold into more, holds fewer rows than its footer says, or is not a Parquet file
            (as pyarrow says).
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
    check_pages(io.BytesIO(content), about, largest_page=largest, largest=largest)
    texts = [field.name for field in schema if field.type in (pa.string(), pa.binary())]
    lists = [field.type.list_size for field in schema if pa.types.is_fixed_size_list(field.type)]
    file = pq.ParquetFile(pa.BufferReader(content), read_dictionary=texts)
    batches, size, num_rows = [], 0, 0
    for batch in file.iter_batches(max(1, _AT_A_TIME // max(lists, default=1))):
        columns = [batch.column(name) for name in texts]
        lengths = [pc.binary_length(one.dictionary).take(one.indices) for one in columns]
        size += sum(pc.sum(one).as_py() or 0 for one in lengths)
        _check(size, largest)
        num_rows += batch.num_rows
        if num_rows > about.num_rows:
            break
        batches.append(batch)
    if num_rows != about.num_rows:
        raise ValueError(f"its footer says that it has {about.num_rows:,} rows, which it has not")
    return pa.Table.from_batches(batches, file.schema_arrow).cast(schema)


def _check(size: int, largest: int) -> None:
    if size > largest:
        raise ValueError(f"it holds more than {largest >> 20} MiB, which are not read")
