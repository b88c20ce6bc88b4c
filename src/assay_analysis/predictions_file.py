"""`predictions.parquet` and `samples.parquet` of a run: what its model said, and samples to look at."""

from __future__ import annotations

import json
import shlex
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import msgspec
import numpy as np

from assay.errors import AssayError, first_line
from assay.files.atomic import write_bytes
from assay.files.symlinks import read_whole
from assay.quoting import is_dotted_path
from assay.task.predictions import StoredPredictions
from assay.task.task_of import TASKS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    import pyarrow as pa  # type: ignore[import-untyped]  # pyarrow ships no types
    from numpy.typing import NDArray


_METADATA = b"assay"


@contextmanager
def explain_read_errors(path: Path) -> Iterator[None]:
    """Say in a line that a file cannot be read, whatever pyarrow raises of a damaged one."""
    try:
        yield
    except FileNotFoundError:
        raise
    except (OSError, ValueError, MemoryError, TypeError, LookupError, ArithmeticError) as error:
        raise AssayError(f"{path} cannot be read: {first_line(error)}") from error


def write_parquet(path: Path, columns: Mapping[str, Any], about: Mapping[str, Any]) -> None:
    """Write a file, whole or not at all."""
    import pyarrow as pa
    import pyarrow.parquet as pq  # type: ignore[import-untyped]  # pyarrow ships no types

    about = {"schema_version": SCHEMA_VERSION, **about}
    table = pa.table(dict(columns)).replace_schema_metadata(
        {_METADATA: json.dumps(about).encode()}
    )
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression="zstd", use_dictionary=False)
    write_bytes(path, sink.getvalue().to_pybytes())


def read_parquet(content: bytes, name: str) -> tuple[pa.Table, dict[str, Any]]:
    """Read a file of `write_parquet`."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pq.ParquetFile(pa.BufferReader(content)).read()
    about = json.loads((table.schema.metadata or {}).get(_METADATA, b"null"))
    if not isinstance(about, dict):
        raise ValueError(f"it is not a file of {name}")
    if (version := about.get("schema_version")) != SCHEMA_VERSION:
        raise ValueError(f"it has schema version {version!r}; this assay reads {SCHEMA_VERSION}")
    return table, about


FILE = "predictions.parquet"
SCHEMA_VERSION = 1
_LARGEST = 1 << 30
"""Bytes of a file, from which on it is not read."""


class _About(msgspec.Struct):
    task: str
    kind: str
    class_names: tuple[str, ...]
    subset: str
    num_evaluated: int


def write(path: Path, predictions: StoredPredictions) -> None:
    """Write them, whole or not at all."""
    import pyarrow as pa

    columns: dict[str, Any] = {"key": pa.array(predictions.keys, pa.string())}
    if predictions.targets is not None:
        columns["target"] = _column(predictions.targets)
    columns["output"] = _column(predictions.outputs)
    write_parquet(
        path, columns, {name: getattr(predictions, name) for name in _About.__struct_fields__}
    )


def read(path: Path) -> StoredPredictions:
    """Read them back.

    Args:
        path: A file, perhaps of somebody else's.

    Raises:
        AssayError: There is none, or it is not what `write` wrote.
    """
    try:
        with explain_read_errors(path):
            return _read(path)
    except FileNotFoundError as error:
        raise AssayError(
            f"{path} does not exist: the run has kept no predictions",
            hint=f"assay eval {shlex.quote(str(path.parent))}",
        ) from error


def _read(path: Path) -> StoredPredictions:
    content = read_whole(path, _LARGEST)
    table, plain = read_parquet(content, "predictions")
    about = msgspec.convert(plain, _About)
    if about.task not in TASKS and not is_dotted_path(about.task):
        raise ValueError("its task is not one of assay's, and no dotted name of a custom one")
    if (names := table.schema.names) not in (["key", "target", "output"], ["key", "output"]):
        raise ValueError(f"expected columns key, target and output, got {', '.join(names)}")
    keys = msgspec.convert(table["key"].to_pylist(), tuple[str, ...])
    targets = None
    if "target" in names:
        targets = _array(table, "target")
    return StoredPredictions(
        keys=keys,
        outputs=_array(table, "output"),
        targets=targets,
        **msgspec.structs.asdict(about),
    )


def _column(values: NDArray[Any]) -> pa.Array:
    import pyarrow as pa

    if values.ndim == 1:
        return pa.array(values)
    flat = pa.array(np.ascontiguousarray(values).reshape(-1))
    return pa.FixedSizeListArray.from_arrays(flat, values.shape[1])


def _array(table: pa.Table, name: str) -> NDArray[Any]:
    import pyarrow as pa

    column = table[name].combine_chunks()
    listed = pa.types.is_fixed_size_list(column.type)
    flat = column
    if listed:
        flat = column.flatten()
    if flat.null_count:
        raise ValueError(f"its column {name} has missing values")
    values: NDArray[Any] = flat.to_numpy(zero_copy_only=False)
    if listed:
        return values.reshape(len(column), column.type.list_size)
    return values


SAMPLES = "samples.parquet"
_PNG = b"\x89PNG\r\n\x1a\n"

Reason = Literal["worst", "occlusion", "confused", "random", "generated"]


class KeptSample(NamedTuple):
    """A sample to look at."""

    key: str
    reason: Reason
    picture: bytes | None
    row: dict[str, str | float | bool | list[str] | None] | None


def write_samples(path: Path, samples: Sequence[KeptSample]) -> None:
    """Write them, whole or not at all."""
    import pyarrow as pa

    rows = [None if sample.row is None else json.dumps(sample.row) for sample in samples]
    columns = {
        "key": pa.array([sample.key for sample in samples], pa.string()),
        "reason": pa.array([sample.reason for sample in samples], pa.string()),
        "picture": pa.array([sample.picture for sample in samples], pa.binary()),
        "row": pa.array(rows, pa.string()),
    }
    write_parquet(path, columns, {})


def read_samples(path: Path) -> list[KeptSample]:
    """Read them back; none where there is no file."""
    if not path.exists():
        return []
    with explain_read_errors(path):
        content = read_whole(path, _LARGEST)
        table, _ = read_parquet(content, "samples")
        rows = [list(row.values()) for row in table.to_pylist()]
        for row in rows:
            row[-1] = row[-1] and json.loads(row[-1])
        samples = msgspec.convert(rows, list[KeptSample], builtin_types=(bytes,))
        if any(
            sample.picture is not None and not sample.picture.startswith(_PNG)
            for sample in samples
        ):
            raise ValueError("expected PNG pictures")
        return samples
