"""A table in chunks has the rows that it has as a whole, and numbers those that cannot be read."""

from __future__ import annotations

import csv
import warnings
from io import StringIO
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.data.tabular.table_encoder import TableEncoder
from assay.data.tabular.table_file import TableChunk, columns_of, table_chunks
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
        assert bad == {row: f"line {row + 2} has 4 values, expected 3" for row in (3, 4, 20, 49)}
        rows = [row for chunk in chunks for row in chunk.rows]
        assert sorted([*rows, *bad]) == list(range(50))
        values = pd.concat([chunk.frame for chunk in chunks])["a"].to_numpy()
        np.testing.assert_array_equal(values, FRAME["a"].to_numpy()[rows])


@st.composite
def csv_files(draw: st.DrawFn) -> tuple[str, str, list[list[str]]]:
    """A CSV file of three columns, its separator, and the fields of each of its rows."""
    separator = draw(st.sampled_from([",", ";", "\t"]))
    end = draw(st.sampled_from(["\n", "\r\n"]))
    text = st.text("ab \n\t\"#,;'ü", max_size=6).map(lambda some: f"x{some}")
    number = st.integers(0, 99).map(str)
    rows: list[list[str]] = []
    lines = ["a" + separator + "code" + separator + "yes"]
    for _ in range(draw(st.integers(1, 12))):
        lines += draw(st.lists(st.sampled_from(["", "  "]), max_size=3))
        row = [draw(number), draw(text), draw(st.sampled_from(["True", "False"]))]
        row = row[: draw(st.integers(1, 3))] if draw(st.booleans()) else row + ["9"] * draw(st.integers(0, 2))
        buffer = StringIO()
        csv.writer(buffer, delimiter=separator, lineterminator="\n").writerow(row)
        lines.append(buffer.getvalue().removesuffix("\n"))
        rows.append(row)
    lines += draw(st.lists(st.sampled_from(["", " "]), max_size=2))
    return end.join(lines) + draw(st.sampled_from(["", end])), separator, rows


@given(csv_files(), st.integers(1, 13))
def test_each_row_keeps_its_number_and_its_values(
    tmp_path_factory: pytest.TempPathFactory, file: tuple[str, str, list[list[str]]], size: int
) -> None:
    """Blank lines, quoted line breaks, rows that are too long or too short, borders of chunks."""
    content, separator, rows = file
    path = tmp_path_factory.mktemp("csv") / "x.csv"
    path.write_bytes(content.encode())
    encoder = TableEncoder()
    encoder.fit(FRAME, np.arange(50))
    chunks = read(path, encoder, size, separator=separator)
    read_rows = {
        number: list(values)
        for chunk in chunks
        for number, values in zip(chunk.rows, chunk.frame.astype(str).itertuples(index=False), strict=True)
    }
    assert read_rows == {number: row for number, row in enumerate(rows) if len(row) == 3}
    bad = {row: why for chunk in chunks for row, why in chunk.bad.items()}
    records = list(csv.reader(StringIO(content, newline=""), delimiter=separator))[1:]
    counted = [record for record in records if record and (len(record) > 1 or record[0].strip())]
    assert counted == rows, "as Python's own reader counts them"
    ends = [f"has {len(row)} values, expected 3" for row in rows if len(row) != 3]
    assert [why.split(" ", 2)[2] for why in bad.values()] == ends
    assert list(bad) == [number for number, row in enumerate(rows) if len(row) != 3]
    lines = content.splitlines()
    for row, why in bad.items():
        assert lines[int(why.split()[1]) - 1].startswith(rows[row][0]), "the line of the file where it begins"


def test_a_quote_that_is_not_closed(tmp_path: Path, encoder: TableEncoder) -> None:
    (tmp_path / "x.csv").write_text('a,code,yes\n1,2,True\n\n1,"2,True\n3,4,True\n')
    [chunk] = read(tmp_path / "x.csv", encoder)
    assert (list(chunk.rows), chunk.bad) == ([0], {1: "line 4: a quote is not closed"})


def test_white_space_between_columns(tmp_path: Path, encoder: TableEncoder) -> None:
    (tmp_path / "x.csv").write_text('a code yes\n 1  "x y"\tTrue  \n\n2 z\n3 "u\nv" False')
    [chunk] = read(tmp_path / "x.csv", encoder, separator=r"\s+")
    assert (list(chunk.rows), chunk.bad) == ([0, 2], {1: "line 4 has 2 values, expected 3"})
    assert chunk.frame["code"].tolist() == ["x y", "u\nv"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("a,code\n1,2\n", "the table has no column 'yes', which the model was trained on"),
        ("a,code,yes,a\n1,2,True,4\n", "two columns called 'a'"),
        ("a;code;yes\n1;2;3\n", "looks separated by ';'"),
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
