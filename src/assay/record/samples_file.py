"""`samples.parquet` of a run: some test samples as a person can look at them, without the data."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

import msgspec

from assay.files.symlinks import read_whole
from assay.record import predictions_file

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

FILE: Final = "samples.parquet"
SCHEMA_VERSION: Final = 1
_LARGEST: Final = 1 << 28
_PNG: Final = b"\x89PNG\r\n\x1a\n"

Reason = Literal["worst", "random", "generated"]


class KeptSample(NamedTuple):
    """A sample to look at."""

    key: str
    reason: Reason
    picture: bytes | None
    row: dict[str, Any] | None


_Row = tuple[str, Reason, bytes | None, dict[str, str | float | bool | list[str] | None] | None]


def write(path: Path, samples: Sequence[KeptSample]) -> None:
    """Write them, whole or not at all."""
    import pyarrow as pa  # type: ignore[import-untyped]  # pyarrow ships no types

    rows = [None if one.row is None else json.dumps(one.row) for one in samples]
    columns = {
        "key": pa.array([one.key for one in samples], pa.string()),
        "reason": pa.array([one.reason for one in samples], pa.string()),
        "picture": pa.array([one.picture for one in samples], pa.binary()),
        "row": pa.array(rows, pa.string()),
    }
    predictions_file.write_parquet(path, columns, {"schema_version": SCHEMA_VERSION})


def read(path: Path) -> list[KeptSample]:
    """Read them back; none where there is no file."""
    if not path.exists():
        return []
    with predictions_file.in_one_line(path):
        content = read_whole(path, _LARGEST)
        table, _ = predictions_file.read_parquet(content, SCHEMA_VERSION, "samples")
        rows = [
            {**values, "row": None if values["row"] is None else json.loads(values["row"])}
            for values in table.to_pylist()
        ]
        samples = [
            KeptSample(*msgspec.convert(list(row.values()), _Row, builtin_types=(bytes,))) for row in rows
        ]
        if any(one.picture is not None and not one.picture.startswith(_PNG) for one in samples):
            raise ValueError("expected PNG pictures")
        return samples
