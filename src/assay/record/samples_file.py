"""`samples.parquet` of a run: some test samples as a person can look at them, without the data."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, get_args

from assay.errors import AssayError, first_line
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
    """Read them back."""
    try:
        return _read(path)
    except FileNotFoundError:
        return []
    except (*predictions_file.UNREADABLE, TypeError, LookupError, ArithmeticError, RecursionError) as error:
        raise AssayError(f"{path} cannot be read: {first_line(error)}") from error


def _read(path: Path) -> list[KeptSample]:
    import pyarrow as pa

    content = read_whole(path, _LARGEST)
    table, _ = predictions_file.read_parquet(content, SCHEMA_VERSION, "samples")
    wanted = {"key": pa.string(), "reason": pa.string(), "picture": pa.binary(), "row": pa.string()}
    if {field.name: field.type for field in table.schema} != wanted:
        raise ValueError(f"its columns are {', '.join(table.schema.names)}")
    return [_checked(one) for one in table.to_pylist()]


def _is_plain(value: Any) -> bool:
    if isinstance(value, list):
        return all(isinstance(one, str) for one in value)
    return not isinstance(value, dict)


def _checked(values: dict[str, Any]) -> KeptSample:
    row = json.loads(values["row"]) if values["row"] is not None else None
    picture = values["picture"]
    wrong = (
        values["key"] is None
        or values["reason"] not in get_args(Reason)
        or not (row is None or isinstance(row, dict))
        or not all(map(_is_plain, (row or {}).values()))
        or not (picture is None or picture.startswith(_PNG))
    )
    if wrong:
        raise ValueError(f"the sample {values['key']!r:.60} is not as expected")
    return KeptSample(values["key"], values["reason"], picture, row)
