"""Parquet files of a run: written whole, with what there is to know about them in the metadata."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from assay.files.atomic import write_bytes

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    import pyarrow as pa  # type: ignore[import-untyped]  # pyarrow ships no types

_METADATA: Final = b"assay"
UNREADABLE: Final = (OSError, ValueError, MemoryError)
"""What pyarrow raises of a damaged file."""


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


def opened(content: bytes, version: int, what: str) -> tuple[pa.Schema, dict[str, Any]]:
    """Look at a file of `write` before anything of it is read.

    Args:
        content: Of the file.
        version: Its `schema_version`.
        what: It holds, for messages.

    Returns:
        Its columns, and what is written about it.

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
    return file.schema_arrow, about


def read_table(content: bytes) -> pa.Table:
    """Read a file of `write`.

    Args:
        content: Of the file.

    Raises:
        ValueError: It is not a Parquet file (as pyarrow says).
        OSError: It is damaged.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    return pq.read_table(pa.BufferReader(content))
