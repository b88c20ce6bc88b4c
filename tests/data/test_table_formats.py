"""The same table in each format and dtype: the same kinds, classes, categories and encoded rows."""

from __future__ import annotations

import datetime as dt
import tempfile
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.data.tables import in_columns, write_table

from assay.data.shards.table_shards import TableShards
from assay.data.table.column import judge_rows
from assay.data.table.column_kind import kind_of
from assay.data.table.table import Table
from assay.data.table.table_encoder import TableEncoder
from assay.data.table.table_file import find_options, prepare_rows, read_table, settle, table_chunks
from assay.errors import DataError
from assay.targets.objects import placeholder, provide_objects

FORMATS = ("csv", "parquet", "feather", "xlsx", "jsonl", "frame")
"""The last is a frame that is given in Python."""
ROWS = 40
VALUES: dict[str, list[Any]] = {
    "int": [3, 1, 2, 700],
    "large": [1700000000000000000 + n for n in range(1, 5)],
    "unsigned": [2**63 + 5, 2**64 - 1, 2**63 + 6],
    "float": [0.5, -1.25, 3.0, 1e10],
    "bool": [True, False],
    "text": ["red", "Blau", "NA", "None", "null", "7a"],
    "date": [dt.datetime(2024, 1, 31), dt.datetime(2024, 2, 29), dt.datetime(1999, 12, 31)],
}
DTYPES = {
    "int": ("int64", "Int64", "int64[pyarrow]", "object"),
    "large": ("int64", "Int64", "int64[pyarrow]", "object"),
    "unsigned": ("UInt64", "uint64[pyarrow]"),
    "float": ("float64", "Float64", "double[pyarrow]", "object"),
    "bool": ("bool", "boolean", "bool[pyarrow]", "object"),
    "text": ("str", "string", "string[pyarrow]", "object", "category"),
    "date": ("datetime64[us]", "timestamp[us][pyarrow]", "date32[pyarrow]", "object"),
}
GAPLESS = {"int64": "Int64", "bool": "boolean"}
CASES = [(kind, dtype) for kind, dtypes in DTYPES.items() for dtype in dtypes]


def make_frame(kind: str, dtype: Any, places: list[int], gap: int | None) -> pd.DataFrame:
    values = [VALUES[kind][place % len(VALUES[kind])] for place in places]
    if gap is not None:
        values[gap] = None
        dtype = GAPLESS.get(dtype, dtype)
    if dtype == "date32[pyarrow]":
        values = [value and value.date() for value in values]
    column = pd.Series(values, dtype=object)
    column = column.astype("datetime64[us]") if dtype.startswith("timestamp") else column
    return pd.DataFrame({"a": np.arange(ROWS) / 8, "x": column.astype(dtype), "y": np.arange(ROWS) % 7 / 4})


def write(frame: pd.DataFrame, folder: str, form: str) -> str:
    return placeholder(frame) if form == "frame" else write_table(frame, Path(folder, f"rows.{form}"))


def encode(path: str, frame: pd.DataFrame, target: str, **options: Any) -> tuple[Table, Any, torch.Tensor]:
    """What a model sees, with what has learned it."""
    table = Table(path, target, **options)
    with provide_objects({"data": frame}):
        rows = table.read()["all"]
    encoder = rows.encoder
    assert isinstance(encoder, TableEncoder)
    encoder.fit(rows.raw, np.arange(len(rows.raw)))
    return table, rows, encoder.transform(rows.raw)


@settings(max_examples=12)
@given(
    st.sampled_from(CASES),
    st.lists(st.integers(0, 5), min_size=ROWS, max_size=ROWS),
    st.none() | st.integers(0, ROWS - 1),
    st.sampled_from(["feature", "category", "target"]),
)
def test_a_table_means_the_same_in_each_format(
    case: tuple[str, str], places: list[int], gap: int | None, role: str
) -> None:
    kind, dtype = case
    places = [*range(6), *range(6), *range(6), *places[18:]]  # each value is frequent enough for a class
    frame = make_frame(kind, dtype, places, gap)
    if (role == "category" and kind in ("float", "date")) or (role == "target" and kind in ("date", "float")):
        role = "feature"
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        for form in FORMATS:
            if form == "xlsx" and kind in ("large", "unsigned"):  # written with 15 digits
                continue
            path = write(frame, folder, form)
            options: dict[str, Any] = {"categories": ["x"]} if role == "category" else {}
            if role == "target" and kind == "unsigned":
                options["task"] = "multiclass"
            table, rows, encoded = encode(path, frame, "x" if role == "target" else "y", **options)
            found[form] = table.task, table.class_names, rows.encoder.feature_names, encoded, rows.targets
            if form != "frame" and role != "target":
                dialect = find_options(Path(path), table.file_options)
                chunks = list(table_chunks(Path(path), rows.encoder, 7, **dialect))
                again = [
                    rows.encoder.transform(prepare_rows(chunk, rows.encoder.columns, "auto"))
                    for chunk in chunks
                ]
                assert torch.equal(torch.cat(again), encoded), f"{form}: as predict reads it, chunk by chunk"
                new = rows.encoder.transform(prepare_rows(frame, rows.encoder.columns, "auto"))
                assert torch.equal(new, encoded), f"{form}: rows that are given in Python"
    for form, (task, classes, names, encoded, targets) in found.items():
        expected = found["frame"]
        assert (task, classes, names) == expected[:3], form
        assert torch.equal(encoded, expected[3]), form
        assert torch.equal(targets, expected[4]), form
    values = [VALUES[kind][place % len(VALUES[kind])] for place in places]
    present = [value for row, value in enumerate(values) if row != gap]
    if role == "target":
        assert len(found["frame"][4]) == len(present)
        if found["frame"][1]:
            assert set(found["frame"][1]) == {str(value) for value in present}
    elif role == "category" and kind != "bool":
        categories = {name for name in found["frame"][2] if name.startswith("x=")} - {"x=missing"}
        assert categories == {f"x={value}" for value in present}


@pytest.mark.parametrize("gap", [None, 5])
@pytest.mark.parametrize("of", ["int", "bool", "large"])
@pytest.mark.parametrize("form", ["parquet", "feather", "frame"])
def test_what_pandas_keeps_as_a_category_of_numbers_is_one(
    form: str, of: str, gap: int | None, tmp_path: Path
) -> None:
    values = [*range(20)] * 2 if of == "int" else VALUES[of] * 20
    column = pd.Series(values[:ROWS], dtype="boolean" if of == "bool" else "Int64")
    column[[] if gap is None else [gap]] = pd.NA
    frame = pd.DataFrame({"shop": column.astype("category"), "y": np.arange(ROWS) % 7 / 4})
    _table, rows, encoded = encode(write(frame, str(tmp_path), form), frame, "y")
    texts = sorted({str(value) for value in values[:ROWS]})
    assert [name for name in rows.encoder.feature_names if "missing" not in name] == [
        f"shop={t}" for t in texts
    ]
    assert in_columns(rows.encoder, encoded).sum(1).tolist() == [1.0] * ROWS
    again = rows.encoder.transform(prepare_rows(frame, rows.encoder.columns, "auto"))
    assert torch.equal(again, encoded)
    target, rows, _ = encode(write(frame, str(tmp_path), form), frame, "shop", features=["y"])
    assert target.class_names == tuple(texts)


ODD: dict[str, tuple[Any, str]] = {
    "decimals": ([Decimal("1.25"), None, Decimal(3)], "number"),
    "whole decimals": ([Decimal(10**17 + 1), Decimal(4), Decimal(5)], "number"),
    "beyond 64 bits": ([2**64, 2**64 + 1, 4], "category"),
    "zones": (pd.date_range("2024-01-01", periods=3, tz="Europe/Berlin"), "date"),
    "durations": (pd.to_timedelta([1, 2, 3], unit="h"), "duration"),
    "arrow durations": (
        pd.Series(pd.to_timedelta([1, None, 3], unit="h")).astype("duration[us][pyarrow]"),
        "duration",
    ),
    "times": ([dt.time(13, 8), dt.time(9), None], ""),
    "codes and numbers": (["7a", 7, 1.0], "category"),
    "intervals": (pd.cut([1, 2, 3], 2), "category"),
    "sparse": (pd.arrays.SparseArray([0, 0, 1]), "number"),
    "nothing": ([None, None, None], "empty"),
    "NaN of Arrow": (pd.array([1.0, np.nan, None], dtype="double[pyarrow]"), "number"),
}


@pytest.mark.parametrize("name", ODD)
def test_columns_of_other_kinds(name: str) -> None:
    values, kind = ODD[name]
    column = settle(pd.DataFrame({"x": values}))["x"]
    if kind:
        assert kind_of(column)[0] == kind
    assert column.isna().tolist() == [bool(missing) for missing in pd.isna(pd.Series(values).astype(object))]
    if name in ("beyond 64 bits", "codes and numbers"):
        assert column.tolist() == [
            str(int(value)) if not isinstance(value, str) else value for value in values
        ]


@pytest.mark.parametrize("form", ["parquet", "jsonl", "frame"])
def test_cells_of_several_values_are_named_unless_they_are_left_out(form: str, tmp_path: Path) -> None:
    frame = pd.DataFrame(
        {"a": np.arange(ROWS) / 8, "tags": [[1, 2], None] * (ROWS // 2), "y": ["u", "v"] * 20}
    )
    path = write(frame, str(tmp_path), form)
    with pytest.raises(DataError, match=r"'tags' cannot .* such as \[1,? 2\]") as refused:
        encode(path, frame, "y")
    assert refused.value.hint == "'data.source.exclude=[tags]' leaves it out"
    for options in ({"exclude": ["tags"]}, {"features": ["a"]}):
        assert list(encode(path, frame, "y", **options)[1].raw.columns) == ["a"]


@pytest.fixture
def csv(tmp_path: Path) -> Any:
    def write_rows(text: str) -> str:
        (tmp_path / "rows.csv").write_text(text, encoding="utf-8")
        return str(tmp_path / "rows.csv")

    return write_rows


WORDS = ("NA", "None", "null", "N/A", "nan", "NULL")


@pytest.mark.parametrize(("word", "form"), [*zip(WORDS, FORMATS, strict=True)])
def test_a_word_for_a_missing_value_is_a_class_and_a_category(word: str, form: str, tmp_path: Path) -> None:
    columns = {"a": np.arange(60) / 8, "c": ["x", "z", word] * 20, "y": [word, "u", "v", "u"] * 15}
    frame = pd.DataFrame(columns)
    path = write(frame, str(tmp_path), form)
    table, rows, _encoded = encode(path, frame, "y")
    assert table.class_names == tuple(sorted(["u", "v", word]))
    assert len(rows.targets) == 60
    assert f"c={word}" in rows.encoder.feature_names
    [note] = [note for note in table.notes if "read as a value" in note]
    assert f"c ({word!r}, 20 rows), y ({word!r}, 15 rows)" in note
    assert f"data.source.na_values=[{word}]" in note.replace('"', "") or word.lower() in ("null", "nan")
    table, rows, _ = encode(path, frame, "y", na_values=[word])
    assert table.class_names == ("u", "v")
    assert "c=missing" in rows.encoder.feature_names
    assert not any("read as" in note for note in table.notes)


@pytest.mark.parametrize("form", FORMATS)
def test_a_word_that_stands_for_missing_numbers_is_missing_in_all_columns(form: str, tmp_path: Path) -> None:
    """As R writes tables."""
    columns = {
        "a": [1.5, None if form in ("parquet", "feather") else "NA", 2.5] * 20,
        "d": ["2024-01-31", "2024-03-01", "NA"] * 20,
        "y": ["u", "v", "NA", "u"] * 15,
    }
    frame = pd.DataFrame(columns)
    path = write(frame, str(tmp_path), form)
    table, rows, _encoded = encode(path, frame, "y")
    assert table.class_names == ("u", "v")
    assert len(rows.targets) == 45
    [note] = [note for note in table.notes if "read as missing" in note]
    assert "d ('NA', 20 rows), y ('NA', 15 rows)" in note
    assert ("a ('NA', 20 rows)" in note) == (form not in ("parquet", "feather"))
    assert "data.source.na_values=[]" in note
    if form == "frame":
        return
    table, rows, _ = encode(path, frame, "y", na_values=[])
    assert table.class_names == ("NA", "u", "v")
    assert rows.raw["a"].isna().sum() == 20
    alone = read_table(path, columns=["y"])
    assert alone["y"].isna().sum() == 15, "the column alone is read as it is among the others"
    chunks = list(table_chunks(Path(path), rows.encoder, 7, **find_options(Path(path), table.file_options)))
    new = pd.concat([prepare_rows(chunk, rows.encoder.columns, []) for chunk in chunks])
    assert judge_rows(new, rows.encoder.columns).frame["d"].isna().sum() == 20


def test_cells_of_rows_without_a_target_do_not_make_a_column_text(csv: Any) -> None:
    lines = [f"{row / 7:.3f},{row % 9},{'' if row % 5 == 0 else row / 4}" for row in range(60)]
    lines[5], lines[10] = "1.5,-,", "?,3,"
    _table, rows, _ = encode(csv("a,b,y\n" + "\n".join(lines) + "\n"), pd.DataFrame(), "y")
    assert [column.kind for column in rows.encoder.columns] == ["number", "number"]
    assert rows.raw["b"].tolist() == [row % 9 for row in range(60) if row % 5]


HEADERLESS = {
    "numbers": ["5.1,3.5,1.4,Iris-setosa", "4.9,3.0,1.4,Iris-setosa", "6.3,3.3,6.0,Iris-virginica"],
    "integers among texts": [
        "39,State-gov,77516,Bachelors",
        "50,Private,83311,Bachelors",
        "38,State-gov,2,HS",
    ],
    "texts": ["p,x,s,n", "e,x,s,y", "p,b,f,n", "e,x,y,w", "p,s,s,n"],
    "the same text twice": ["vhigh,vhigh,2,small", "low,med,2,big", "vhigh,low,4,small"],
}


@pytest.mark.parametrize("name", HEADERLESS)
def test_a_first_row_of_values_is_refused(name: str, csv: Any) -> None:
    lines = HEADERLESS[name]
    path = csv("\n".join([*lines, *lines, *reversed(lines)]) + "\n")
    with pytest.raises(DataError, match=r"looks like values|two columns called") as refused:
        read_table(path)
    assert "data.source.header=false" in refused.value.hint
    frame = read_table(path, header=False)
    assert list(frame.columns) == [f"c{index}" for index in range(4)]
    assert len(frame) == 3 * len(lines), "no row is lost"
    encoder = TableEncoder()
    encoder.fit(frame, np.arange(len(frame)))
    chunks = list(table_chunks(Path(path), encoder, 4, header=False))
    assert torch.equal(torch.cat([encoder.transform(chunk) for chunk in chunks]), encoder.transform(frame))


def test_a_header_within_the_rows_is_named(csv: Any) -> None:
    header = "a,b,y"
    rows = [f"{row / 8},{'uvw'[row % 3]},{row % 7}" for row in range(40)]
    with pytest.raises(DataError, match="row 20 holds the names of the columns again"):
        read_table(csv("\n".join([header, *rows[:20], header, *rows[20:]]) + "\n"))


@pytest.mark.parametrize(
    "header", ["2013,2014,2015", "0,1,2", "400.5,401.0,401.5", "a,b,c", "1,2,3", "x.1,x.2,10"]
)
def test_names_that_are_numbers_are_names(header: str, csv: Any) -> None:
    rows = [f"{row % 3 + 0.5},{row % 5 + 0.25},{row / 7}" for row in range(20)]
    frame = read_table(csv("\n".join([header, *rows])))
    assert list(frame.columns) == header.split(",")


TITLES = {
    "a line": ("Sales report\n", 1),
    "lines and a blank one": ("# from the shop\n# 2024\n\n", 3),
    "cells": ("Sales report,,,\n,,,\n", 2),
}


@pytest.mark.parametrize("name", TITLES)
@pytest.mark.parametrize("separator", [",", ";"])
def test_a_title_is_named_and_skipped(name: str, separator: str, csv: Any) -> None:
    title, lines = TITLES[name]
    rows = [f"{row},{row / 8},u,{row % 2}" for row in range(20)]
    path = csv((title + "\n".join(["n,size,kind,y", *rows]) + "\n").replace(",", separator))
    with pytest.raises(DataError, match="header") as refused:
        read_table(path)
    assert f"data.source.skip_rows={lines} " in refused.value.hint
    frame = read_table(path, skip_rows=lines)
    assert list(frame.columns) == ["n", "size", "kind", "y"]
    assert frame["size"].tolist() == [row / 8 for row in range(20)]


def test_titles_and_missing_headers_of_excel(tmp_path: Path) -> None:
    path = str(tmp_path / "rows.xlsx")
    rows = pd.DataFrame({"n": [3.5, 1.25, 2.5, 9.0], "kind": ["u", "v", "u", "v"]})
    rows.to_excel(path, index=False, startrow=2)
    with pytest.raises(DataError, match="header"):
        read_table(path)
    pd.testing.assert_frame_equal(read_table(path, skip_rows=2), rows, check_dtype=False)
    rows.to_excel(path, index=False, header=False)
    with pytest.raises(DataError, match="looks like values"):
        read_table(path)
    assert read_table(path, header=False)["c0"].tolist() == [3.5, 1.25, 2.5, 9.0]


@pytest.mark.parametrize(("words", "is_left_out"), [(["Train", "test "], True), (["train", "car"], False)])
def test_a_column_of_subsets_is_no_feature(words: list[str], is_left_out: bool, csv: Any) -> None:
    rows = [f"{row / 8},{words[row % 3 == 0]},{row % 7 / 4}" for row in range(40)]
    table, rows_read, _ = encode(csv("\n".join(["a,part,y", *rows])), pd.DataFrame(), "y")
    assert ("part" not in rows_read.raw) == is_left_out
    assert any("data.split.column=part" in note for note in table.notes) == is_left_out


def test_labels_in_one_cell(csv: Any) -> None:
    cells = ["red;blue", "red", "blue; green", "green;red", "blue", "", "green"] * 8
    path = csv("\n".join(["a,tags", *(f"{row / 8},{cell}" for row, cell in enumerate(cells))]))
    table, _, _ = encode(path, pd.DataFrame(), "tags")
    [note] = [note for note in table.notes if "several labels" in note]
    assert "'data.source.label_separator=\";\"'" in note
    table, rows, _ = encode(path, pd.DataFrame(), "tags", label_separator=";")
    assert (table.task, table.class_names) == ("multilabel", ("blue", "green", "red"))
    expected = [[label in cell for label in ("blue", "green", "red")] for cell in cells if cell]
    assert rows.targets.tolist() == np.array(expected).astype(int).tolist()
    assert list(rows.raw.columns) == ["a"]
    read_again = table.read()["all"]
    assert torch.equal(read_again.targets, rows.targets)
    table.known_labels = ("blue", "green", "red", "violet")
    assert table.read()["all"].targets[:, 3].sum() == 0, "a label that no cell names"
    for message, typed in (
        ("no cell of 'tags' contains it", {"label_separator": "|"}),
        ("cannot be converted to numbers", {"task": "multilabel"}),
    ):
        with pytest.raises(DataError, match=message) as refused:
            encode(path, pd.DataFrame(), "tags", **typed)
        assert refused.value.hint == "'data.source.label_separator=\";\"'"
    path = csv("\n".join(["a,size", *(f"{row / 8},{'SML'[row % 3]}/{'XY'[row % 2]}" for row in range(40))]))
    table, _, _ = encode(path, pd.DataFrame(), "size")
    assert not any("several labels" in note for note in table.notes), "classes of their own"


def test_integers_that_excel_may_have_rounded_are_noted(tmp_path: Path) -> None:
    path = str(tmp_path / "big.xlsx")
    pd.DataFrame({"card": [4_000_000_000_000_002, 3], "y": [1, 2]}).to_excel(path, index=False)
    notes: list[str] = []
    read_table(path, notes=notes)
    assert notes == [f"{path}: Excel keeps 15 digits of a number; integers that may be rounded: card"]


@pytest.mark.parametrize("base", [2**53, 2**63])
@pytest.mark.parametrize("form", ["parquet", "csv", "jsonl"])
def test_integers_that_floats_do_not_tell_apart_are_categories(tmp_path: Path, base: int, form: str) -> None:
    codes = np.arange(60) % 5
    accounts = pd.Series([base + int(code) for code in codes], dtype="UInt64")
    columns = {"x": np.linspace(0, 1, 60), "account": accounts, "y": codes + np.linspace(0, 1, 60) ** 2}
    frame = pd.DataFrame(columns)
    _, rows, encoded = encode(write(frame, str(tmp_path), form), frame, "y")
    assert rows.encoder.feature_names[1:] == [f"account={base + code}" for code in range(5)]
    np.testing.assert_array_equal(in_columns(rows.encoder, encoded)[:, 1:], np.eye(5)[codes])


def every_kind(rows: int = 400) -> pd.DataFrame:
    draw = np.random.default_rng(0)
    days = pd.Timestamp("2020-01-01") + pd.to_timedelta(draw.integers(0, 900, rows), unit="D")
    names = draw.choice(["hamburg", "munich", "berlin", "cologne", "stuttgart"], rows)
    table = pd.DataFrame(
        {
            "size": draw.normal(size=rows),
            "grade": draw.integers(1, 4, rows),
            "garden": draw.random(rows) < 0.5,
            "product_code": draw.integers(1000, 1030, rows),
            "shop_code": pd.Series(draw.integers(100, 120, rows), dtype="Int64"),
            "left_code": draw.integers(100, 120, rows),
            "store_id": draw.integers(500, 540, rows),
            "site_id": [f"S{place}" for place in draw.integers(0, 40, rows)],
            "order_id": draw.permutation(rows) * 3,
            "price": [f"${price:,.2f}" for price in draw.lognormal(7, 1, rows)],
            "measured": np.where(draw.random(rows) < 0.05, "?", draw.normal(size=rows).round(3).astype(str)),
            "day": days.strftime("%d.%m.%Y"),
            "start": [f"{minute // 60:02}:{minute % 60:02}" for minute in draw.integers(0, 1440, rows)],
            "city": [name + "".join(draw.choice(list("aeiou"), 3)) for name in names],
            "color": draw.choice(["red", "blue", "NA"], rows),
            "part": draw.choice(["train", "test"], rows),
            "same": 1,
            "y": draw.normal(size=rows),
        }
    )
    table.loc[::40, "shop_code"] = pd.NA
    return table


def test_columns_are_of_the_same_kinds_whichever_way_a_table_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ASSAY_CACHE", str(tmp_path / "cache"))
    frame = every_kind()
    found: dict[str, Any] = {}
    for form in FORMATS:
        with provide_objects({"data": frame}):
            source = Table(write(frame, str(tmp_path), form), "y", exclude=["left_code"])
            found[form] = source, source.read()["all"]
    (tmp_path / "shards").mkdir()
    for number in range(3):
        frame[number::3].to_parquet(tmp_path / "shards" / f"{number}.parquet", index=False)
    shards = TableShards(str(tmp_path / "shards"), "y", exclude=["left_code"])
    found["shards"] = shards, shards.read()["train"]
    categories = ("product_code", "shop_code", "store_id", "site_id", "color")
    expected = dict.fromkeys(("size", "grade", "garden", "price", "measured"), "number")
    expected |= {"day": "date", "start": "date", "city": "ngrams"} | dict.fromkeys(categories, "category")
    for form, (source, samples) in found.items():
        samples.encoder.fit(samples.raw, np.arange(len(samples.raw)))
        assert {column.name: column.kind for column in samples.encoder.columns} == expected, form
        assert torch.isfinite(samples.encoder.transform(samples.raw)).all()
        assert [note for note in source.notes if "by their names" in note] == [
            "integers taken as categories, by their names: product_code, shop_code; as numbers: "
            "'data.source.keep=[product_code,shop_code]'"
        ], form
