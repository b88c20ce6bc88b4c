"""Files that are made by pyarrow, and then made to lie."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pyarrow as pa  # type: ignore[import-untyped]  # pyarrow ships no types
import pyarrow.parquet as pq  # type: ignore[import-untyped]  # pyarrow ships no types
import pytest

from assay.data.tabular.table_chunks import table_chunks
from assay.data.tabular.table_encoder import TableEncoder
from assay.data.tabular.table_file import read_table
from assay.errors import DataError
from assay.files import parquet_pages
from assay.files.parquet_pages import check_pages, page_sizes

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

MIB = 1 << 20
LARGE = 160 * MIB


def varint(number: int, length: int = 0) -> bytes:
    """Zigzag, as Thrift's compact protocol writes it; of a length, which the protocol allows to be longer."""
    left, parts = number << 1, list[int]()
    while left or not parts or len(parts) < length:
        parts.append(left & 0x7F)
        left >>= 7
    return bytes([part | 0x80 for part in parts[:-1]] + parts[-1:])


@pytest.fixture(scope="module")
def small_footer() -> bytes:
    """A text of 160 MiB in a few KiB, of which the footer says that it is small."""
    sink = io.BytesIO()
    columns = {"key": pa.array(["a" * LARGE])}
    pq.write_table(pa.table(columns), sink, compression="zstd", use_dictionary=False, write_statistics=False)
    content = sink.getvalue()
    assert len(content) < MIB // 8
    chunk = pq.ParquetFile(io.BytesIO(content)).metadata.row_group(0).column(0)
    footer = len(content) - 8 - int.from_bytes(content[-8:-4], "little")
    assert chunk.total_uncompressed_size > LARGE
    old = varint(chunk.total_uncompressed_size)  # of the chunk, and of its group
    return content[:footer] + content[footer:].replace(old, varint(1000, len(old)))


@pytest.fixture
def pool() -> Iterator[pa.MemoryPool]:
    """Counts what pyarrow allocates."""
    before = pa.default_memory_pool()
    counting = pa.proxy_memory_pool(before)
    pa.set_memory_pool(counting)
    yield counting
    pa.set_memory_pool(before)


def metadata_of(content: bytes) -> Any:
    return pq.ParquetFile(io.BytesIO(content)).metadata


def test_a_page_says_more_than_the_footer(small_footer: bytes, pool: pa.MemoryPool) -> None:
    metadata = metadata_of(small_footer)
    assert metadata.row_group(0).column(0).total_uncompressed_size == 1000
    with pytest.raises(ValueError, match="a page of it holds more than 32 MiB"):
        check_pages(io.BytesIO(small_footer), metadata, largest_page=32 * MIB)
    with pytest.raises(ValueError, match="it holds more than 159 MiB"):
        check_pages(io.BytesIO(small_footer), metadata, largest_page=LARGE * 2, largest=159 * MIB)
    check_pages(io.BytesIO(small_footer), metadata, largest_page=LARGE * 2, largest=LARGE * 2)
    assert pool.max_memory() < MIB, "nothing was unfolded for that"
    assert pq.ParquetFile(io.BytesIO(small_footer)).read()["key"][0].as_py() == "a" * LARGE
    assert pool.max_memory() > LARGE, "which is what it is about"


@pytest.mark.parametrize("read", ["chunks", "whole"])
def test_a_table_of_somebody_elses_is_judged_first(
    read: str, small_footer: bytes, pool: pa.MemoryPool, tmp_path: Path
) -> None:
    [size] = page_sizes(io.BytesIO(small_footer), metadata_of(small_footer))
    path, old = tmp_path / "rows.parquet", varint(size)
    assert small_footer[:64].count(old) == 1
    path.write_bytes(small_footer.replace(old, varint(2**31 - 1, len(old)), 1))  # and two GiB it is
    encoder = TableEncoder()
    encoder.fit(pd.DataFrame({"key": ["a", "b"] * 10}), np.arange(20))
    with pytest.raises(DataError, match="a page of it holds more than 256 MiB, which are not read"):
        _ = list(table_chunks(path, encoder, 8)) if read == "chunks" else read_table(str(path))
    assert pool.max_memory() < MIB


@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("compression", ["none", "snappy", "zstd", "gzip"])
@pytest.mark.parametrize("dictionary", [True, False])
def test_honest_files_say_what_the_footer_says(version: str, compression: str, dictionary: bool) -> None:
    draw = np.random.default_rng(0)
    columns = {
        "number": pa.array(draw.normal(size=30_000)),
        "text": pa.array([None if one % 7 == 0 else f"text {one % 90}" for one in range(30_000)]),
        "list": pa.array([[one, one] for one in range(30_000)]),
        "truth": pa.array([one % 3 == 0 for one in range(30_000)]),
    }
    sink = io.BytesIO()
    options: Any = {"compression": compression, "use_dictionary": dictionary, "data_page_version": version}
    pq.write_table(
        pa.table(columns),
        sink,
        **options,
        row_group_size=20_000,
        data_page_size=4096,
        write_page_checksum=True,
    )
    metadata = metadata_of(sink.getvalue())
    chunks = [metadata.row_group(group).column(at) for group in range(2) for at in range(4)]
    sizes = list(page_sizes(sink, metadata))
    assert len(sizes) > len(chunks)
    # The footer counts headers, too.
    assert 0 <= sum(chunk.total_uncompressed_size for chunk in chunks) - sum(sizes) < 120 * len(sizes)


@pytest.mark.parametrize("cut", [0.1, 0.5, 0.9])
def test_what_is_no_page_is_refused(cut: float) -> None:
    sink = io.BytesIO()
    pq.write_table(pa.table({"a": np.random.default_rng(0).normal(size=5000)}), sink, compression="none")
    content = bytearray(sink.getvalue())
    metadata = metadata_of(bytes(content))
    with pytest.raises(ValueError, match="its pages are not where its footer says"):
        check_pages(io.BytesIO(content[: int(len(content) * cut)]), metadata, largest_page=MIB)
    content[4:64] = b"\xff" * 60
    with pytest.raises(ValueError, match="of it"):
        check_pages(io.BytesIO(content), metadata, largest_page=MIB)


@pytest.mark.parametrize(
    ("header", "sizes"),
    [
        (b"\x15\x00\x15\xc8\x01\x15\x14\x00", (100, 10)),
        (b"\x15\x00\x15\xc8\x81\x80\x80\x80\x01\x15\x14\x10", (100, 10)),  # cut off at 32 bits; another end
        (b"\x15\x00\x15\xc8\x01\x15\x14\x04\x04\x02\x00", (100, 10)),  # the last one is no i32
    ],
)
def test_a_header_is_read_as_thrift_reads_it(header: bytes, sizes: tuple[int, int]) -> None:
    read = parquet_pages._Header(header)
    assert (read.sizes[2], read.sizes[3]) == sizes
