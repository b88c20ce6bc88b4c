"""Samples come back as they were; anything else is one message."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pyarrow as pa  # type: ignore[import-untyped]  # pyarrow ships no types
import pyarrow.parquet as pq  # type: ignore[import-untyped]  # as above
import pytest

from assay.errors import AssayError
from assay.record import samples_file
from assay.record.samples_file import KeptSample

if TYPE_CHECKING:
    from pathlib import Path

PNG = b"\x89PNG\r\n\x1a\n..."
SAMPLES = [
    KeptSample("a/<script>.png", "worst", PNG, None),
    KeptSample(
        "7", "random", None, {"size": 1.5, "kind": "a\x1b[0m", "on": True, "gap": None, "n": float("nan")}
    ),
]


def test_they_come_back_as_they_were(tmp_path: Path) -> None:
    path = tmp_path / samples_file.FILE
    assert samples_file.read(path) == []
    for samples in ([], SAMPLES):
        samples_file.write(path, samples)
        assert repr(samples_file.read(path)) == repr(samples)
    assert list(tmp_path.iterdir()) == [path]


ABOUT = {b"assay": json.dumps({"schema_version": 1}).encode()}


@pytest.mark.parametrize(
    ("changed", "metadata", "message"),
    [
        ({}, {}, "not a file of samples"),
        ({}, {b"assay": b'{"schema_version": 2}'}, "schema version 2"),
        ({"picture": pa.array([b"<svg onload=alert(1)>"])}, ABOUT, "expected PNG"),
        ({"reason": ["best"]}, ABOUT, "best"),
        ({"key": pa.array([None], pa.string())}, ABOUT, "cannot be read"),
        ({"row": ['{"a": {"b": 1}}']}, ABOUT, "cannot be read"),
        ({"row": ["{"]}, ABOUT, "cannot be read"),
    ],
)
def test_another_file_is_one_message(
    changed: dict[str, Any], metadata: dict[bytes, bytes], message: str, tmp_path: Path
) -> None:
    path = tmp_path / samples_file.FILE
    fine: dict[str, Any] = {"key": ["0"], "reason": ["worst"], "picture": [PNG], "row": ["{}"]}
    pq.write_table(pa.table(fine | changed).replace_schema_metadata(metadata), path)
    with pytest.raises(AssayError, match=message) as error:
        samples_file.read(path)
    assert str(path) in error.value.message
    assert "\n" not in error.value.message


def test_a_damaged_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / samples_file.FILE
    samples_file.write(path, SAMPLES)
    content = path.read_bytes()
    for damaged in (b"", content[:50], content[:-4]):
        path.write_bytes(damaged)
        with pytest.raises(AssayError, match="cannot be read"):
            samples_file.read(path)
