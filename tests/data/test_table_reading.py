"""Files of tables as pandas and other programs write them, whole and in chunks, and those that are none."""

from __future__ import annotations

import csv
import gzip
import os
import re
from functools import partial
from io import StringIO
from itertools import cycle
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.datasets import load_diabetes, load_iris, load_wine  # type: ignore[import-untyped]  # ships no types
from tests.data.tables import write_table
from tests.data.test_table import frame

from assay.data.table.category import Text
from assay.data.table.table import Table
from assay.data.table.table_encoder import TableEncoder
from assay.data.table.table_file import read_table, resolve_options, table_chunks
from assay.errors import AssayError, ConfigError, DataError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

AUTO: dict[str, Any] = {"separator": "auto", "decimal": "auto"}


def dialect(path: Path, text: str | bytes) -> tuple[str, str]:
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    found = resolve_options(path, AUTO)
    return found["separator"], found["decimal"]


@pytest.mark.parametrize(
    ("load", "separator", "decimal"),
    [
        *((load_iris, ",", "."), (load_wine, ";", "."), (load_diabetes, ";", ",")),
        *((load_iris, "\t", ","), (load_wine, "|", "."), (load_diabetes, ",", ".")),
    ],
)
def test_what_pandas_has_written_is_found(
    tmp_path: Path, load: Callable[..., Any], separator: str, decimal: str
) -> None:
    frame = load(as_frame=True, **({"scaled": False} if load is load_diabetes else {})).frame
    path = tmp_path / "rows.csv"
    frame.to_csv(path, index=False, sep=separator, decimal=decimal)
    found = resolve_options(path, AUTO)
    assert (found["separator"], found["decimal"]) == (separator, decimal)
    pd.testing.assert_frame_equal(read_table(str(path)), frame, check_dtype=False)
    # Python's own sniffer, where it dares to answer, agrees.
    try:
        sniffed = csv.Sniffer().sniff(path.read_text()[:20_000], ";\t|,")
    except csv.Error:
        return
    assert decimal == "," or sniffed.delimiter == separator


DIALECTS: dict[str, tuple[str | bytes, tuple[str, str]]] = {
    "German": ("Preis;Ort\n1.234,5;Ulm\n2,5;Bonn\n3,75;Köln\n" + "4,5;Ulm\n" * 9, (";", ",")),
    "a comma in each header": ("Preis,EUR;Menge,kg\n1,5;2,25\n2,5;3,5\n", (";", ",")),
    "commas in texts": ('name;n\n"Ulm, Donau";1\n"Bonn, Rhein";2\n', (";", ".")),
    "separators in quotes": ('a,b\n"x;y;z",1\n"x;y;z",2\n', (",", ".")),
    "lines in quotes": ('a;b\n"one\ntwo, three";1,5\n"four";2,5\n', (";", ",")),
    "thousands": ("city;people\nUlm;126,000\nBonn;336,465\n", (";", ".")),
    "thousands and fewer": ("city;people\nUlm;126,000\nRust;999\n", (";", ".")),
    "three decimals": ("city;km\nUlm;0,250\nBonn;1,500\n", (";", ",")),
    "missing values": ("a;b\n1,5;x\n;y\n2,5;z\n-;y\n" + "3,5;x\n" * 9, (";", ",")),
    "a BOM": (b"\xef\xbb\xbfa;b\n1,5;x\n", (";", ",")),
    "a header alone": ("a\tb\n", ("\t", ".")),
    "a single column": ("a\n1\n2\n", (",", ".")),
    "rows that are too long": ("a,b\n1,2,\n3,4,\n", (",", ".")),
    "German dates": ("day;x\n05.01.2024;1,5\n06.01.2024;2\n", (";", ",")),
}


@pytest.mark.parametrize("name", DIALECTS)
def test_separator_and_decimal_point(tmp_path: Path, name: str) -> None:
    text, expected = DIALECTS[name]
    assert dialect(tmp_path / "rows.csv", text) == expected


def test_a_decimal_point_beside_a_decimal_comma(tmp_path: Path) -> None:
    """As pandas writes a table one of whose columns was text."""
    numbers = np.arange(40) / 8 + 0.125
    frame = pd.DataFrame({"a": ["39,99", *["1,5"] * 39], "b": numbers, "y": ["u", "v"] * 20})
    path = tmp_path / "rows.csv"
    frame.to_csv(path, sep=";", index=False)
    samples = Table(str(path), "y").read()["all"]
    encoder: Any = samples.encoder
    encoder.fit(samples.raw, np.arange(40))
    np.testing.assert_array_equal(encoder.transform(samples.raw)[:, 1], numbers)


LINES = '{"text": "a", "n": 1}\n{"n": 2.5, "text": "b\\nb", "more": null}\n\n{"n": 3}\n\n'


def read_chunks(path: Path, names: list[str], size: int) -> list[pd.DataFrame]:
    encoder = TableEncoder()
    encoder.columns = tuple(Text(name) for name in names)
    return list(table_chunks(path, encoder, size))


def test_lines_that_are_no_objects_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text(LINES, encoding="utf-8")
    chunks = read_chunks(path, ["text", "n"], 2)
    assert [list(chunk.index) for chunk in chunks] == [[0, 1], [2]]
    assert pd.concat(chunks)["text"].tolist()[:2] == ["a", "b\nb"]
    for bad, message in (("[1]", "is a list, not an object"), ('{"text":', "is not JSON: ")):
        path.write_text(LINES + bad, encoding="utf-8")
        with pytest.raises(DataError, match=f"line 6 {message}"):
            read_table(str(path))
        with pytest.raises(DataError, match=f"line 6 {message}"):
            read_chunks(path, ["text", "n"], 2)


def test_a_text_per_line_also_an_empty_one(tmp_path: Path) -> None:
    path = tmp_path / "texts.txt"
    path.write_text("\ufefffirst\n\n'third', and more\n", encoding="utf-8")
    (chunk,) = read_chunks(path, ["words"], 10)
    assert chunk["words"].tolist() == ["first", "", "'third', and more"]


ROWS = pd.DataFrame({"size": [1.5, None, 3.0], "city": ["001", "2024-01-01", "ä, b"], "rooms": [1, 2, 3]})

WRITE: dict[str, Any] = {
    **dict.fromkeys((".csv", ".csv.gz", ".csv.xz", ".csv.zip"), partial(ROWS.to_csv, index=False)),
    **dict.fromkeys((".parquet", ".PQ"), ROWS.to_parquet),
    ".feather": ROWS.to_feather,
    ".jsonl": partial(ROWS.to_json, orient="records", lines=True),
    ".xlsx": partial(ROWS.to_excel, index=False),
}


@pytest.mark.parametrize("suffix", WRITE)
def test_what_pandas_wrote_is_read(tmp_path: Path, suffix: str) -> None:
    path = str(tmp_path / f"rows{suffix}")
    WRITE[suffix](path)
    pd.testing.assert_frame_equal(read_table(path), ROWS, check_dtype=False)
    some = read_table(path, columns=["city", "size"])
    assert {*some.columns} == {"city", "size"}
    pd.testing.assert_frame_equal(some[["size", "city"]], ROWS[["size", "city"]], check_dtype=False)


@pytest.mark.parametrize("encoding", ["latin-1", "utf-16", "cp1252"])
def test_an_encoding_that_is_named(tmp_path: Path, encoding: str) -> None:
    path = tmp_path / "rows.csv"
    path.write_bytes("größe;art\n1,5;süß\n2,5;sauer\n".encode(encoding))
    found = read_table(str(path), encoding=encoding)
    assert found.to_dict("list") == {"größe": [1.5, 2.5], "art": ["süß", "sauer"]}
    with pytest.raises(DataError, match="is not text in utf-8") as refused:
        read_table(str(path))
    assert "data.source.encoding=" in refused.value.hint


def test_sheets_of_excel(tmp_path: Path) -> None:
    path = str(tmp_path / "rows.xlsx")
    with pd.ExcelWriter(path) as book:
        ROWS.to_excel(book, sheet_name="new rows", index=False)
        ROWS[["city"]].to_excel(book, sheet_name="cities", index=False)
    assert list(read_table(path, sheet="cities").columns) == ["city"]
    with pytest.raises(DataError, match="has 2 sheets: new rows, cities") as several:
        read_table(path)
    assert several.value.hint == "'data.source.sheet=new rows'"
    with pytest.raises(DataError, match="Worksheet named 'city' not found"):
        read_table(path, sheet="city")


FRAME = pd.DataFrame(
    {"a": np.arange(50) / 8, "code": [f"0{row % 7}" for row in range(50)], "yes": np.arange(50) % 2 == 0}
)


@pytest.fixture
def encoder() -> TableEncoder:
    encoder = TableEncoder()
    encoder.fit(FRAME, np.arange(50))
    return encoder


def chunks_of(path: Path, encoder: TableEncoder, size: int = 16, **options: str) -> list[pd.DataFrame]:
    return list(table_chunks(path, encoder, size, **options))


@pytest.mark.parametrize("name", ["x.csv.gz", "x.PQ"])
@pytest.mark.parametrize("size", [1, 16, 1000])
def test_the_rows_of_the_whole(tmp_path: Path, encoder: TableEncoder, name: str, size: int) -> None:
    path = tmp_path / name
    (FRAME.to_csv(path, index=False) if ".csv" in name else FRAME.to_parquet(path, row_group_size=7))
    chunks = chunks_of(path, encoder, size)
    assert [row for chunk in chunks for row in chunk.index] == list(range(50))
    assert max(map(len, chunks)) <= size
    whole = pd.concat(chunks)
    assert whole["code"].tolist() == FRAME["code"].tolist(), "01 stays 01 in a chunk of nothing else"
    np.testing.assert_array_equal(encoder.transform(whole), encoder.transform(FRAME))


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
        if draw(st.integers(0, 20)) == 0:
            row = draw(st.sampled_from([row[:1], row[:2], [*row, "9"]]))
        buffer = StringIO()
        csv.writer(buffer, delimiter=separator, lineterminator="\n").writerow(row)
        lines.append(buffer.getvalue().removesuffix("\n"))
        rows.append(row)
    lines += draw(st.lists(st.sampled_from(["", " "]), max_size=2))
    return end.join(lines) + draw(st.sampled_from(["", end])), separator, rows


@settings(max_examples=50)
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
    records = list(csv.reader(StringIO(content, newline=""), delimiter=separator))[1:]
    counted = [record for record in records if record and (len(record) > 1 or record[0].strip())]
    assert counted == rows, "as Python's own reader counts them"
    if wrong := [number for number, row in enumerate(rows) if len(row) != 3]:
        for read in (partial(chunks_of, path, encoder, size), partial(read_table, str(path))):
            with pytest.raises(DataError, match=f"{len(wrong)} of {len(rows)} .* first row {wrong[0]} "):
                read(separator=separator)
        return
    chunks = chunks_of(path, encoder, size, separator=separator)
    whole = pd.concat(chunks).astype(str)
    assert whole.index.tolist() == list(range(len(rows)))
    assert whole.to_numpy().tolist() == rows
    assert read_table(str(path), separator=separator).astype(str).to_numpy().tolist() == rows


def test_white_space_between_columns(tmp_path: Path, encoder: TableEncoder) -> None:
    (tmp_path / "x.csv").write_text('a code yes\n 1  "x y"\tTrue  \n\n3 "u\nv" False')
    [chunk] = chunks_of(tmp_path / "x.csv", encoder, separator=r"\s+")
    assert chunk["code"].tolist() == ["x y", "u\nv"]
    (tmp_path / "x.csv").write_text('a code yes\n 1  "x y"\tTrue  \n\n2 z\n3 "u\nv" False')
    with pytest.raises(DataError, match="first row 1 "):
        chunks_of(tmp_path / "x.csv", encoder, separator=r"\s+")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("a,code\n1,2\n", "the table has no column 'yes', which the model was trained on"),
        ("a,code,yes,a\n1,2,True,4\n", "two columns called 'a'"),
    ],
)
def test_what_cannot_be_read(tmp_path: Path, encoder: TableEncoder, content: str, message: str) -> None:
    (tmp_path / "x.csv").write_text(content)
    with pytest.raises(DataError, match=message):
        chunks_of(tmp_path / "x.csv", encoder)


@pytest.mark.parametrize("name", ["broken.parquet", "table.xlsx", "table.json", "half.csv.gz"])
def test_a_file_that_is_no_table(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(gzip.compress(b"a,b" * 1000)[:15] if name == "half.csv.gz" else b"")
    with pytest.raises(AssayError, match=r"data\.source\.path.*(cannot be read|expected .* file)"):
        Table(str(tmp_path / name), "y").read()


@pytest.mark.parametrize(
    ("text", "options"),
    [
        ("a;b\n1,5;x\n2,5;-\n", {"separator": ";", "decimal": ",", "na_values": ["-"]}),
        ("a b\n1.5  x\n2.5 NA\n", {"separator": r"\s+", "na_values": ["NA"]}),
    ],
)
def test_forms_of_csv(tmp_path: Path, text: str, options: dict[str, Any]) -> None:
    (tmp_path / "rows.csv").write_text(text)
    found = read_table(str(tmp_path / "rows.csv"), **options)
    assert found["a"].tolist() == [1.5, 2.5]
    assert found["b"].isna().tolist() == [False, True]


NO_TABLES: list[tuple[bytes, str, str]] = [
    (b"", "is empty", "give a table"),
    (b"a,b\n", "has no rows", ""),
    (b"\0" * 1000, "has no rows", ""),
    ("größe,y\n1,a\n".encode("latin-1"), "is not text in utf-8", "encoding=cp1252"),
    (frame().to_csv().encode("utf-16"), "is not text in utf-8", "utf-16"),
    (b'"x","y"\n"1",3,a\n"2",4,b\n', "2 of 2 rows have more or fewer", "separator"),  # R's row names
    (b"x,y\n1,a\n2,b,3,4\n", "row 1 (line 3; rows count from 0) with 4", "repair"),
    (b"x,z,y\n1,2,a\n3,4\n", "row 1 (line 3; rows count from 0) with 2", "repair"),
    (b"a,b,a\n1,2,3\n", "has two columns called 'a'", "rename"),
    (b'a.1,"b\n",a,"b\n"\n1,2,3,4\n', "has two columns called 'b", "rename"),
]


@pytest.mark.parametrize(("content", "message", "hint"), NO_TABLES)
def test_files_that_are_no_tables(tmp_path: Path, content: bytes, message: str, hint: str) -> None:
    (tmp_path / "rows.csv").write_bytes(content)
    with pytest.raises(DataError, match=re.escape(message)) as refused:
        read_table(str(tmp_path / "rows.csv"), "test_path")
    assert hint in refused.value.hint
    assert refused.value.message.startswith("data.source.test_path=")


def test_separators_at_the_end_of_the_rows_shift_nothing(tmp_path: Path) -> None:
    text = "".join(f"{row / 7},{'ab'[row % 2]},\n" for row in range(40))
    (tmp_path / "table.csv").write_text(f"x,y\n{text}", encoding="utf-8")
    data = Table(str(tmp_path / "table.csv"), "y").read()["all"]
    assert list(data.raw.columns) == ["x"]
    assert data.targets.tolist() == [0, 1] * 20


def test_what_would_never_end_is_not_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.csv")
    with pytest.raises(ConfigError, match=r"pipe\.csv is not a regular file"):
        Table(str(tmp_path / "pipe.csv"), "y").read()
    with pytest.raises(ValueError, match=re.escape("separator='(a+)+$': expected one character")):
        Table("table.csv", "y", separator="(a+)+$")


@pytest.mark.parametrize("more", ["0.1,0.2\n", "0.3"])
def test_a_file_that_grows_while_it_is_read_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, more: str
) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("x,y\n" + "0.5,1.5\n" * 40, encoding="utf-8")
    read_csv = pd.read_csv

    def write_beside(*given: Any, **options: Any) -> Any:
        with path.open("a", encoding="utf-8") as file:
            file.write(more)
        return read_csv(*given, **options)

    monkeypatch.setattr(pd, "read_csv", write_beside)
    with pytest.raises(DataError, match=r"rows\.csv was written to while it was read") as refused:
        read_table(str(path))
    assert refused.value.hint == "train on a copy of it"


@pytest.mark.parametrize("suffix", ["csv", "parquet", "jsonl", "xlsx"])
def test_white_space_alone_is_an_empty_cell(tmp_path: Path, suffix: str) -> None:
    """As programs pad columns of fixed width: total charges of a customer who has paid nothing yet."""
    cells = {
        "amount": ["29.85", "", "108.15", "1840.75", "9"],
        "count": ["1", "2", "", "4", "5"],
        "code": ["01", "02", "03", "", "05"],
        "flag": ["True", "False", "True", "False", ""],
        "name": ["a", "", "b", "a", "b"],
        "day": ["2024-01-01", "2024-01-02", "", "2024-01-04", "2024-01-05"],
    }
    frames = []
    for name, texts in (("empty", [""]), ("blank", [" ", "   ", "\t", "\u00a0"])):
        values = {column: {"": blank} for column, blank in zip(cells, cycle(texts), strict=False)}
        table = pd.DataFrame(cells).replace(values)
        frames.append(read_table(write_table(table, tmp_path / f"{name}.{suffix}")))
    empty, blanks = frames
    pd.testing.assert_frame_equal(empty, blanks, check_dtype=False)
    assert blanks.isna().sum().tolist() == [1] * len(cells)
