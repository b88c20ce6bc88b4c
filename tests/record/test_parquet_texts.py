from __future__ import annotations

import base64
import io
from typing import TYPE_CHECKING, Any

import pyarrow as pa  # type: ignore[import-untyped]  # pyarrow ships no types
import pyarrow.parquet as pq  # type: ignore[import-untyped]  # pyarrow ships no types
import pytest
from tests.record.test_predictions_file import _about
from tests.record.test_samples_file import ABOUT, PNG

from assay.errors import AssayError
from assay.record import predictions_file, samples_file
from assay.record.parquet_texts import read_texts

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

MIB = 1 << 20


def written(keys: Sequence[str | None], **options: Any) -> bytes:
    sink, numbers = io.BytesIO(), pa.array(range(len(keys)), pa.int64())
    pq.write_table(pa.table({"key": pa.array(keys, pa.string()), "number": numbers}), sink, **options)
    return sink.getvalue()


@pytest.mark.parametrize("dictionary", [True, False])
@pytest.mark.parametrize("keys", [["a", None, "", "ä" * 40, "a"], []])
def test_what_is_small_comes_back(keys: list[str | None], dictionary: bool) -> None:
    table = read_texts(written(keys, use_dictionary=dictionary, row_group_size=2), MIB)
    assert table["key"].to_pylist() == keys
    assert table.schema.types == [pa.string(), pa.int64()]


@pytest.mark.parametrize(
    ("keys", "options", "message"),
    [
        (["x" * MIB] * 64, {}, "it holds more than 32 MiB"),
        (["x" * MIB] * 64, {"row_group_size": 3}, "it holds more than 32 MiB"),
        (["x" * MIB] * 64, {"use_dictionary": False}, "it holds more than 32 MiB"),
        (["x" * MIB] * 64, {"use_dictionary": False, "column_encoding": {"key": "DELTA_BYTE_ARRAY"}},
         "encoded as DELTA_BYTE_ARRAY"),
    ],
)  # fmt: skip
def test_a_small_file_of_long_texts_is_not_unfolded(
    keys: list[str], options: dict[str, Any], message: str
) -> None:
    content = written(keys, compression="zstd", **options)
    assert len(content) < MIB
    with pytest.raises(ValueError, match=message):
        read_texts(content, 32 * MIB)


NUM_ROWS = 54_321


def lying(content: bytes, claim: int) -> bytes:
    """The same file with a footer that says it has other numbers of rows: varints of Thrift's, doubled."""

    def written(number: int) -> bytes:
        groups = [2 * number >> 7 * place & 127 for place in range(-(-(2 * number).bit_length() // 7))]
        return bytes([group | 128 for group in groups[:-1]] + groups[-1:])

    start = len(content) - 8 - int.from_bytes(content[-8:-4], "little")
    footer = content[start:-8].replace(written(NUM_ROWS), written(claim))
    assert footer != content[start:-8]
    return content[:start] + footer + len(footer).to_bytes(4, "little") + b"PAR1"


_DEFAULT = pa.default_memory_pool()
_POOL = pa.proxy_memory_pool(_DEFAULT)
"""Kept, as pyarrow goes on using it for what was read by it."""


@pytest.mark.parametrize("claim", [NUM_ROWS + 1, 1 << 28, 1 << 45, 1 << 62])
def test_a_footer_that_lies_has_nothing_allocated(claim: int) -> None:
    keys, numbers = pa.array(["a"] * NUM_ROWS), pa.array([0.5] * (3 * NUM_ROWS), pa.float32())
    columns = {"key": keys, "output": pa.FixedSizeListArray.from_arrays(numbers, 3)}
    sink = io.BytesIO()
    pq.write_table(pa.table(columns), sink, compression="zstd", use_dictionary=False)
    assert read_texts(sink.getvalue(), 256 * MIB).num_rows == NUM_ROWS
    pa.set_memory_pool(_POOL)
    try:
        before = _POOL.max_memory()
        with pytest.raises(ValueError, match=f"its footer says that it has {claim:,} rows"):
            read_texts(lying(sink.getvalue(), claim), 256 * MIB)
    finally:
        pa.set_memory_pool(_DEFAULT)
    assert _POOL.max_memory() - before < 32 * MIB


@pytest.mark.parametrize("name", ["predictions", "samples"])
def test_neither_of_a_run_s_files_is(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """256 MiB in a few kilobytes, as a stranger's run may bring them."""
    read = {"predictions": predictions_file, "samples": samples_file}[name]
    monkeypatch.setattr(read, "_LARGEST", 8 * MIB)
    count = 64
    long = pa.DictionaryArray.from_arrays(pa.array([0] * count, pa.int32()), pa.array(["x" * 4 * MIB]))
    output = pa.FixedSizeListArray.from_arrays(pa.array([0.5] * 2 * count, pa.float32()), 2)
    columns, about = {
        "predictions": ({"target": [0] * count, "output": output}, _about()),
        "samples": ({"reason": ["worst"] * count, "picture": [PNG] * count, "row": ["{}"] * count}, ABOUT),
    }[name]
    path, texts = tmp_path / f"{name}.parquet", pa.array([""] * count)
    plain = pa.table({"key": texts, **columns}).replace_schema_metadata(about)
    stored = pa.ipc.read_schema(plain.schema.serialize()).serialize().to_pybytes()
    with pq.ParquetWriter(
        path, pa.table({"key": long, **columns}).schema, compression="zstd", store_schema=False
    ) as writer:
        writer.write_table(pa.table({"key": long, **columns}))
        writer.add_key_value_metadata({**about, b"ARROW:schema": base64.b64encode(stored)})
    assert path.stat().st_size < MIB
    with pytest.raises(AssayError, match=r"it holds more than \d+ MiB, which are not read"):
        read.read(path)
