"""A table in chunks has the rows that it has as a whole, and numbers those that cannot be read."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import pytest

from assay.data.tabular.table_chunks import TableChunk, columns_of, table_chunks
from assay.data.tabular.table_encoder import TableEncoder
from assay.errors import DataError

if TYPE_CHECKING:
    from pathlib import Path

FRAME = pd.DataFrame(
    {"a": np.arange(50) / 8, "code": [f"0{row % 7}" for row in range(50)], "yes": np.arange(50) % 2 == 0}
)


@pytest.fixture
def encoder() -> TableEncoder:
    encoder = TableEncoder()
    encoder.fit(FRAME, np.arange(50))
    return encoder


def read(path: Path, encoder: TableEncoder, size: int = 16, **options: str) -> list[TableChunk]:
    return list(table_chunks(path, encoder, size, **options))


@pytest.mark.parametrize("name", ["x.csv", "x.csv.gz", "x.parquet", "x.PQ"])
@pytest.mark.parametrize("size", [1, 16, 50, 1000])
def test_the_rows_of_the_whole(tmp_path: Path, encoder: TableEncoder, name: str, size: int) -> None:
    path = tmp_path / name
    (FRAME.to_csv(path, index=False) if ".csv" in name else FRAME.to_parquet(path, row_group_size=7))
    assert columns_of(path) == ["a", "code", "yes"]
    chunks = read(path, encoder, size)
    assert [row for chunk in chunks for row in chunk.rows] == list(range(50))
    assert max(len(chunk.frame) for chunk in chunks) <= size
    whole = pd.concat([chunk.frame for chunk in chunks], ignore_index=True)
    assert whole["code"].tolist() == FRAME["code"].tolist(), "01 stays 01 in a chunk of nothing else"
    np.testing.assert_array_equal(encoder.transform(whole), encoder.transform(FRAME))


def test_lines_that_are_too_long_are_rows(tmp_path: Path, encoder: TableEncoder) -> None:
    lines = FRAME.to_csv(index=False).splitlines()
    for row in (3, 4, 20, 49):
        lines[row + 1] += ",more"
    (tmp_path / "x.csv").write_text("\n".join(lines))
    for size in (1, 5, 16, 100):
        chunks = read(tmp_path / "x.csv", encoder, size)
        bad = {row: why for chunk in chunks for row, why in chunk.bad.items()}
        assert bad == {row: f"line {row + 2} has 4 values; 3 were expected" for row in (3, 4, 20, 49)}
        rows = [row for chunk in chunks for row in chunk.rows]
        assert sorted([*rows, *bad]) == list(range(50))
        values = pd.concat([chunk.frame for chunk in chunks])["a"].to_numpy()
        np.testing.assert_array_equal(values, FRAME["a"].to_numpy()[rows])


def test_empty_lines_are_no_rows_and_none_is_lost(tmp_path: Path, encoder: TableEncoder) -> None:
    lines = FRAME.head(6).to_csv(index=False).splitlines()
    lines[4] += ",more"
    (tmp_path / "x.csv").write_text("\n\n".join(lines))
    [chunk] = read(tmp_path / "x.csv", encoder)
    assert (len(chunk.frame), len(chunk.bad)) == (5, 1)
    assert sorted([*chunk.rows, *chunk.bad]) == list(range(6))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("a,code\n1,2\n", "the table has no column 'yes', which the model was trained on"),
        ("a,code,yes,a\n1,2,True,4\n", "two columns called 'a'"),
        ("a;code;yes\n1;2;3\n", "looks separated by ';'"),
        ("a,code,yes\n1,2,True,4\n1,2,True\n", "the rows have more values than the header has names"),
        ('a,code,yes\n1,2,True\n1,"2,True\n', "inside string"),
        ("", "No columns"),
    ],
)
def test_what_cannot_be_read(tmp_path: Path, encoder: TableEncoder, content: str, message: str) -> None:
    (tmp_path / "x.csv").write_text(content)
    with pytest.raises(DataError, match=message), warnings.catch_warnings():
        read(tmp_path / "x.csv", encoder)


def test_what_is_no_parquet(tmp_path: Path, encoder: TableEncoder) -> None:
    (tmp_path / "x.parquet").write_text("a,code,yes\n")
    with pytest.raises(DataError, match=r"x\.parquet cannot be read"):
        read(tmp_path / "x.parquet", encoder)
