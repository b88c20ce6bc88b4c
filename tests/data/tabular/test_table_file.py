from __future__ import annotations

import gzip
from typing import TYPE_CHECKING, Any

import pandas as pd
import pytest

from assay.data.tabular.table_file import check_columns, read_table
from assay.errors import DataError

if TYPE_CHECKING:
    from pathlib import Path

ROWS = pd.DataFrame({"size": [1.5, None, 3.0], "city": ["Ulm", "Bonn", "a, b"], "rooms": [1, 2, 3]})


@pytest.mark.parametrize("suffix", [".csv", ".csv.gz", ".csv.xz", ".csv.zip", ".parquet", ".PQ"])
def test_what_pandas_wrote_is_read(tmp_path: Path, suffix: str) -> None:
    path = str(tmp_path / f"rows{suffix}")
    ROWS.to_csv(path, index=False) if ".csv" in suffix else ROWS.to_parquet(path)
    pd.testing.assert_frame_equal(read_table(path), ROWS, check_dtype=False)
    pd.testing.assert_frame_equal(
        read_table(path, columns=["city", "size"])[["size", "city"]],
        ROWS[["size", "city"]],
        check_dtype=False,
    )


@pytest.mark.parametrize(
    ("text", "options"),
    [
        ("a;b\n1,5;x\n2,5;-\n", {"separator": ";", "decimal": ",", "na_values": ["-"]}),
        ("a b\n1.5  x\n2.5 NA\n", {"separator": r"\s+"}),
        ("a\tb\n1.5\tx\n2.5\t\n", {"separator": "\t"}),
    ],
)
def test_forms_of_csv(tmp_path: Path, text: str, options: dict[str, Any]) -> None:
    (tmp_path / "rows.csv").write_text(text)
    found = read_table(str(tmp_path / "rows.csv"), **options)
    assert found["a"].tolist() == [1.5, 2.5]
    assert found["b"].isna().tolist() == [False, True]


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"a,b\n", "has no rows"),
        (b"a,b\n1,2\n3\n4,5\n6\n", "header has 2 fields, and 2 of 4 rows have more or fewer: first row 1"),
        (b"a,b\n1,2,3\n4,5,6\n", "2 of 2 rows have more or fewer"),
        (b"a,b\n1,\xff\n", "not text in UTF-8"),
        (b"", "cannot be read: No columns to parse"),
        (b"a,b,a\n1,2,3\n", "has two columns called 'a'"),
        (b'a.1,"b\n",a,"b\n"\n1,2,3,4\n', "has two columns called 'b"),
        (b'a,b,c\n1,"x,1\n2,y,2\n3,z",3\n', "a quote is not closed there"),
    ],
)
def test_what_is_no_table(tmp_path: Path, content: bytes, says: str) -> None:
    (tmp_path / "rows.csv").write_bytes(content)
    with pytest.raises(DataError) as refused:
        read_table(str(tmp_path / "rows.csv"), "test_path")
    assert says in refused.value.message
    assert refused.value.message.startswith("data.source.test_path=")


def test_names_that_pandas_might_have_made_up(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("a,a.1,,,v.10\n1,2,3,4,5\n")
    assert list(read_table(str(tmp_path / "rows.csv")).columns)[:2] == ["a", "a.1"]


def test_half_a_compressed_file(tmp_path: Path) -> None:
    packed = gzip.compress(ROWS.to_csv(index=False).encode())
    (tmp_path / "rows.csv.gz").write_bytes(packed[: len(packed) // 2])
    with pytest.raises(DataError, match="cannot be read"):
        read_table(str(tmp_path / "rows.csv.gz"))


def test_a_column_that_is_not_there() -> None:
    check_columns(ROWS, ["size", "city"], "rows.csv", "target")
    with pytest.raises(DataError) as refused:
        check_columns(ROWS, ["size", "citty"], "rows.csv", "target")
    assert "data.source.target: rows.csv has no column 'citty'; did you mean 'city'?" in refused.value.message
    assert refused.value.hint == "columns: size, city, rooms"


def test_a_last_field_that_is_empty_is_there(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("a,b\n1,2\n3,\n")
    assert read_table(str(tmp_path / "rows.csv"))["b"].isna().tolist() == [False, True]


@pytest.mark.parametrize("encoding", ["latin-1", "utf-16", "cp1252"])
def test_an_encoding_that_is_named(tmp_path: Path, encoding: str) -> None:
    path = tmp_path / "rows.csv"
    path.write_bytes("größe;art\n1,5;süß\n2,5;sauer\n".encode(encoding))
    found = read_table(str(path), encoding=encoding)
    assert found.to_dict("list") == {"größe": [1.5, 2.5], "art": ["süß", "sauer"]}
    with pytest.raises(DataError, match="is not text in UTF-8") as refused:
        read_table(str(path))
    assert refused.value.hint.endswith("utf-16" if encoding == "utf-16" else "latin-1")


def test_feather_and_excel_are_read_as_csv_is(tmp_path: Path) -> None:
    ROWS.to_feather(tmp_path / "rows.feather")
    ROWS.to_excel(tmp_path / "rows.xlsx", index=False)
    for name in ("rows.feather", "rows.xlsx"):
        pd.testing.assert_frame_equal(read_table(str(tmp_path / name)), ROWS, check_dtype=False)
        assert list(read_table(str(tmp_path / name), columns=["city"]).columns) == ["city"]


def test_sheets_of_excel(tmp_path: Path) -> None:
    path = str(tmp_path / "rows.xlsx")
    with pd.ExcelWriter(path) as book:
        ROWS.to_excel(book, sheet_name="new rows", index=False)
        ROWS[["city"]].to_excel(book, sheet_name="cities", index=False)
        pd.DataFrame([["a", "a"], [1, 2]]).to_excel(book, sheet_name="twice", index=False, header=False)
    assert list(read_table(path, sheet="cities").columns) == ["city"]
    with pytest.raises(DataError, match="has 3 sheets: new rows, cities, twice") as several:
        read_table(path)
    assert several.value.hint == "'data.source.sheet=new rows'"
    with pytest.raises(DataError, match=r"data\.source\.sheet=city: .* has no such sheet"):
        read_table(path, sheet="city")
    with pytest.raises(DataError, match="two columns called 'a'"):
        read_table(path, sheet="twice")
    (tmp_path / "broken.xlsx").write_bytes(b"PK\x03\x04 nothing")
    with pytest.raises(DataError, match="cannot be read"):
        read_table(str(tmp_path / "broken.xlsx"))
