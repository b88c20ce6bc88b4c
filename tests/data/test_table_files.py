"""Files of tables as other programs write them, and those that are none."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pytest
from tests.data.made_tables import check_refused, frame, save, with_values

from assay.data.table import Table
from assay.errors import AssayError, ConfigError, DataError

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("name", ["nowhere.csv", "nowhere.parquet"])
def test_a_file_that_is_not_there(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigError, match=rf"data\.source\.path: there is no such file: .*{name}"):
        Table(str(tmp_path / name), "y").read()


@pytest.mark.parametrize("name", ["broken.csv", "broken.parquet", "table.xlsx", "table.json"])
def test_a_file_that_is_no_table(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"")
    with pytest.raises(AssayError, match=r"data\.source\.path.*(cannot be read|file was expected)"):
        Table(str(tmp_path / name), "y").read()


@pytest.mark.parametrize("between", [1, 2, 20])
def test_rows_that_an_open_quote_takes_in_are_not_lost(tmp_path: Path, between: int) -> None:
    path = tmp_path / "pipes.csv"
    names = [f'"{i} inch' if i in (5, 5 + between) else f"{i} inch" for i in range(40)]
    path.write_text(
        "a,pipe,y\n" + "".join(f"{i}.5,{name},{i % 2}\n" for i, name in enumerate(names)), "utf-8"
    )
    with pytest.raises(DataError, match=rf"{between} rows lie within a cell of the column 'pipe' in row 5 "):
        Table(str(path), "y").read()
    text = 'a,pipe,y\n1,"two lines,\nof, text",0\n2,"1, 2\n3, 4\n5, 6",1\n'
    path.write_text(text, encoding="utf-8")
    assert len(Table(str(path), "y", features=["a", "pipe"]).read()["all"].raw) == 2


def test_no_rows_and_another_separator(tmp_path: Path) -> None:
    (tmp_path / "empty.csv").write_text("a,b,c\n", encoding="utf-8")
    with pytest.raises(DataError, match="has no rows"):
        Table(str(tmp_path / "empty.csv"), "c").read()
    (tmp_path / "semicolons.csv").write_text("a;b;c\n1;2;x\n3;4;y\n", encoding="utf-8")
    with pytest.raises(DataError, match="looks separated by ';'"):
        Table(str(tmp_path / "semicolons.csv"), "c", separator=",").read()
    assert Table(str(tmp_path / "semicolons.csv"), "c", separator=";").read()
    (tmp_path / "decimals.csv").write_text('a;"b, cm";c\n1,5;2,5;x\n3;4,1;y\n', encoding="utf-8")
    with pytest.raises(DataError, match="looks separated by ';'") as caught:
        Table(str(tmp_path / "decimals.csv"), "c", separator=",").read()
    assert caught.value.hint == "'data.source.separator=\";\"'"
    assert Table(str(tmp_path / "decimals.csv"), "c", separator=";", decimal=",").read()


def test_files_of_other_programs(tmp_path: Path) -> None:
    table = frame()
    folder = tmp_path / "my tables, [2024]"
    folder.mkdir()
    named = table.rename(columns={"height": "Größe (cm)", "kind": "Art €"})
    marked = table.astype({"height": object})
    marked.loc[3, "height"] = "?"
    cases: list[tuple[str, dict[str, Any], pd.DataFrame, str]] = [
        ("bom.csv", {}, table, "kind"),
        ("semicolons.csv", {"separator": ";", "decimal": ","}, table, "kind"),
        ("names.csv", {}, named, "Art €"),
        ("marks.csv", {"na_values": ["?"], "missing": "impute"}, marked, "kind"),
        ("spaces.csv", {"separator": r"\s+"}, table, "kind"),
    ]
    for name, options, given, target in cases:
        sep = " " if name == "spaces.csv" else options.get("separator", ",")
        text = given.to_csv(index=False, sep=sep, decimal=options.get("decimal", "."))
        (folder / name).write_text(text, "utf-8-sig" if name == "bom.csv" else "utf-8", newline="")
        source = Table(str(folder / name), target, **options)
        raw = source.read()["all"].raw
        assert len(raw.columns) == 5, name
        np.testing.assert_allclose(raw.iloc[4:, 1].astype(float), table["height"][4:], err_msg=name)


def test_separators_at_the_end_of_the_rows_shift_nothing(tmp_path: Path) -> None:
    text = "".join(f"{row / 7},{'ab'[row % 2]},\n" for row in range(40))
    (tmp_path / "table.csv").write_text(f"x,y\n{text}", encoding="utf-8")
    data = Table(str(tmp_path / "table.csv"), "y").read()["all"]
    assert list(data.raw.columns) == ["x"]
    assert data.targets.tolist() == [0, 1] * 20


def test_a_named_index_of_a_parquet_file_is_a_column(tmp_path: Path) -> None:
    save(frame().set_index("height"), tmp_path, "table.parquet")
    assert "height" in Table(str(tmp_path / "table.parquet"), "kind").read()["all"].raw


UNREADABLE: list[tuple[str, bytes, str, str]] = [
    ("nothing", b"", "cannot be read: No columns", "repair"),
    ("zeros", b"\0" * 1000, "has no rows", ""),
    ("latin-1", "größe,y\n1,a\n".encode("latin-1"), "is not text in UTF-8", "encoding=latin-1"),
    ("UTF-16", frame().to_csv().encode("utf-16"), "is not text in UTF-8", "encoding=utf-16"),
    ("R's row names", b'"x","y"\n"1",3,a\n"2",4,b\n', "2 of 2 rows have more or fewer", "separator"),
    ("a longer row", b"x,y\n1,a\n2,b,3,4\n", "row 1 (line 3; rows count from 0) with 4", "repair"),
    ("a row that ends early", b"x,z,y\n1,2,a\n3,4\n", "row 1 (line 3; rows count from 0) with 2", "repair"),
]


@pytest.mark.parametrize(("content", "message", "hint"), [case[1:] for case in UNREADABLE])
def test_files_that_are_no_tables(tmp_path: Path, content: bytes, message: str, hint: str) -> None:
    (tmp_path / "table.csv").write_bytes(content)
    with pytest.raises(DataError, match=re.escape(message)) as caught:
        Table(str(tmp_path / "table.csv"), "y").read()
    assert hint in caught.value.hint


def test_what_would_never_end_is_not_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.csv")
    with pytest.raises(ConfigError, match=r"pipe\.csv is not a regular file"):
        Table(str(tmp_path / "pipe.csv"), "y").read()
    with pytest.raises(ValueError, match=re.escape("separator='(a+)+$': expected one character")):
        Table("table.csv", "y", separator="(a+)+$")


PRICES = [f"${price:,}" for price in range(100_000, 140_000, 1_000)]


def without_marks(column: str, values: Any) -> pd.DataFrame:
    return frame().assign(**{column: values})


@pytest.mark.parametrize(
    ("table", "options", "message", "hint"),
    [
        (without_marks("price", PRICES), {"target": "price"}, "text such as '$100,000', but looks", "signs"),
        (without_marks("tax", PRICES), {}, "column 'tax' is text such as '$100,000'", "exclude=[tax]"),
        (
            without_marks("tax", ["?", *map(str, range(39))]),
            {},
            "column 'tax' is text such as '?', but looks like numbers",
            'data.source.na_values=["?"]',
        ),
        (
            without_marks("day", pd.date_range("2020-01-01", periods=40)),
            {"target": "day"},
            "holds dates",
            "numbers or classes",
        ),
        (
            without_marks("name", [f"row {i}" for i in range(40)]),
            {"target": "name"},
            "40 different texts in 40 rows, such as 'row 0', are not classes",
            "another column",
        ),
        (
            without_marks("far", 1e12 + np.arange(40.0)),
            {"target": "far"},
            "differ too little for 32-bit numbers",
            "subtract a constant",
        ),
        (
            frame(),
            {"features": ["age", "kind"]},
            "data.source.features: 'kind' is the target",
            "leave it out",
        ),
        (frame(), {"exclude": ["agee"]}, "data.source.exclude: ", "columns: age"),
        (with_values(height=(3, 1e300)), {}, "'height' has 1e+300 in row 3", "exclude=[height]"),
    ],
)
def test_columns_that_cannot_be_used(
    tmp_path: Path, table: pd.DataFrame, options: dict[str, Any], message: str, hint: str
) -> None:
    check_refused(table, tmp_path, message, hint, **options)


def test_classes_that_differ_in_blanks_or_capitals_are_named(tmp_path: Path) -> None:
    table = frame(40).assign(kind=["yes", "Yes ", "no", "no"] * 10)
    source = Table(save(table, tmp_path), "kind")
    assert len(set(source.read()["all"].targets.tolist())) == 3
    assert source.notes[-1] == "classes that differ only in blanks or capital letters: 'yes', 'Yes '"
