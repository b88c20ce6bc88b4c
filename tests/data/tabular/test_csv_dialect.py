from __future__ import annotations

import csv
import gzip
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_diabetes, load_iris, load_wine  # type: ignore[import-untyped]  # ships no types

from assay.data.tabular.table_file import read_table, resolved

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

AUTO = {"separator": "auto", "decimal": "auto"}


def dialect(path: Path, text: str | bytes) -> tuple[str, str]:
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    found = resolved(path, AUTO)
    return found["separator"], found["decimal"]


@pytest.mark.parametrize("load", [load_iris, load_wine, load_diabetes])
@pytest.mark.parametrize(
    ("separator", "decimal"), [(",", "."), (";", "."), (";", ","), ("\t", ","), ("|", ".")]
)
def test_what_pandas_has_written_is_found(
    tmp_path: Path, load: Callable[..., Any], separator: str, decimal: str
) -> None:
    frame = load(as_frame=True, **({"scaled": False} if load is load_diabetes else {})).frame
    path = tmp_path / "rows.csv"
    frame.to_csv(path, index=False, sep=separator, decimal=decimal)
    found = resolved(path, AUTO)
    assert (found["separator"], found["decimal"]) == (separator, decimal)
    pd.testing.assert_frame_equal(read_table(str(path)), frame, check_dtype=False)
    # Python's own sniffer, where it dares to answer, agrees.
    try:
        sniffed = csv.Sniffer().sniff(path.read_text()[:20_000], ";\t|,")
    except csv.Error:
        return
    assert decimal == "," or sniffed.delimiter == separator


CASES: dict[str, tuple[str | bytes, tuple[str, str]]] = {
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


@pytest.mark.parametrize("name", CASES)
def test_separator_and_decimal_point(tmp_path: Path, name: str) -> None:
    text, expected = CASES[name]
    assert dialect(tmp_path / "rows.csv", text) == expected


def test_what_is_named_is_taken(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("a;b\n1,5;x\n")
    assert resolved(path, {"separator": ",", "decimal": "."}) == {"separator": ",", "decimal": "."}
    assert resolved(path, {"separator": ";", "decimal": "auto"})["decimal"] == ","
    assert resolved("rows.parquet", AUTO) == {"separator": ",", "decimal": "."}  # which is not even opened


def test_a_compressed_file_and_more_lines_than_are_looked_at(tmp_path: Path) -> None:
    values = np.arange(5000) / 8
    text = "x;y\n" + "".join(f"{value};a\n" for value in values).replace(".", ",")
    (tmp_path / "rows.csv.gz").write_bytes(gzip.compress(text.encode()))
    assert read_table(str(tmp_path / "rows.csv.gz"))["x"].tolist() == values.tolist()
