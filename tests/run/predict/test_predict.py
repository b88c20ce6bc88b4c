"""Files and folders through a model: the same numbers as in the run's own test, and what is bad is a row."""

from __future__ import annotations

import csv
import gc
import json
import os
import re
import shutil
import tracemalloc
from functools import partial
from io import StringIO
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from tests.command import typed
from tests.run.predict.conftest import rows_of_test, said_in_test
from typer.testing import CliRunner

import assay
from assay.cli.app import app
from assay.errors import AssayError, ConfigError
from assay_analysis.predictions_file import FILE
from assay_serve.predict import Predicted, predict

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import Trained

    from assay.run.predictor import Predictor


def predicted(run: Trained, *inputs: Path, **options: Any) -> Predicted:
    return predict(assay.load(run.run_dir, map_location="cpu"), run.run_dir, inputs, **options)


READ: dict[str, Any] = {
    "csv": pd.read_csv,
    "parquet": pd.read_parquet,
    "jsonl": partial(pd.read_json, lines=True),
}


def test_a_table(kind_run: Trained, table: Path, tmp_path: Path) -> None:
    """Other formats are tried with columns that are kept."""
    out = tmp_path / "found.parquet"
    found = predicted(kind_run, table / "rows.csv", out=out, top_k=1)
    [note] = found.notes
    assert note.startswith(f"{table / 'rows.csv'}: the model does not use customer_id, price; --keep NAME")
    frame, expected = pd.read_parquet(out), said_in_test(kind_run)
    assert len(frame) == found.num_samples == 300
    assert frame["row"].tolist() == list(range(300))
    names = list(kind_run.config.spec.class_names)
    assert list(frame.columns) == [
        *("input", "row", "prediction", "probability"),
        *(*(f"probability {name}" for name in names), "warning", "error"),
    ]
    tested = frame.iloc[rows_of_test(kind_run)]
    np.testing.assert_allclose(tested[[f"probability {name}" for name in names]], expected, atol=1e-6)
    assert tested["prediction"].tolist() == [names[index] for index in expected.argmax(1)]


@pytest.mark.parametrize(
    ("form", "suffix"), [("csv", "parquet"), ("parquet", "jsonl"), ("jsonl", "csv"), ("xlsx", "csv")]
)
def test_columns_that_are_kept(
    kind_run: Trained, table: Path, tmp_path: Path, form: str, suffix: str
) -> None:
    """As they stand in the input, by row, also where rows fail; names that are taken are not overwritten."""
    rows = pd.read_parquet(table / "rows.parquet").head(40)
    rows = rows.assign(number=[f"{index:03}" for index in range(40)], prediction=range(40))
    rows.loc[3, "size"], rows.loc[5, "rooms"] = 1e6, 10**9
    if form == "csv":
        rows.astype({"size": object}).to_csv(tmp_path / "new.csv", index=False)
    elif form == "jsonl":
        rows.to_json(tmp_path / "new.jsonl", orient="records", lines=True)
    else:
        (rows.to_excel if form == "xlsx" else rows.to_parquet)(tmp_path / f"new.{form}", index=False)
    out = tmp_path / f"said.{suffix}"
    keep = ["number", "prediction", "rooms"]
    found = predicted(kind_run, tmp_path / f"new.{form}", out=out, keep=keep)
    texts = {"dtype": {"number": str}} if suffix != "parquet" else {}
    frame = READ[suffix](out, **texts)
    assert [name for name in frame.columns if "top" not in name][:6] == [
        *("input", "row", "number", "input prediction", "rooms", "prediction")
    ]
    assert frame["number"].str.removeprefix("'").tolist() == rows["number"].tolist()
    assert frame["input prediction"].astype(int).tolist() == list(range(40))
    assert frame["rooms"].astype(int).tolist() == rows["rooms"].tolist()
    assert found.notes[-1] == "rows with a warning: 2 of 40, see column warning"
    wrong = predicted(kind_run, tmp_path / f"new.{form}", keep=["numbr"])
    assert wrong.first_error.endswith("no column 'numbr' to keep; did you mean 'number'?")


def test_parquet_holds_no_numbers_and_texts_in_one_column(
    kind_run: Trained, table: Path, tmp_path: Path
) -> None:
    rows = pd.read_parquet(table / "rows.parquet").head(4)
    rows.to_json(tmp_path / "a.jsonl", orient="records", lines=True)
    rows.assign(rooms="many").to_json(tmp_path / "b.jsonl", orient="records", lines=True)
    inputs = (tmp_path / "a.jsonl", tmp_path / "b.jsonl")
    with pytest.raises(AssayError, match="not all inputs have the same kind of values in a column to keep"):
        predicted(kind_run, *inputs, out=tmp_path / "said.parquet", keep=["rooms"])
    predicted(kind_run, *inputs, out=tmp_path / "said.csv", keep=["rooms"])
    assert pd.read_csv(tmp_path / "said.csv")["rooms"].tolist()[-1] == "many"


def test_what_is_to_be_typed_next_keeps_what_was_typed(kind_run: Trained, table: Path) -> None:
    options = ("--keep=customer_id", "--encoding=utf-8", "--top-k=2")
    told = typed("predict", kind_run.run_dir, table / "rows.csv", *options).stdout
    assert f"rows.csv {' '.join(options)} --out predictions.csv" in told


def test_what_is_bad_among_pictures_is_a_row(photo_run: Trained, photos: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="reads no tables"):
        predicted(photo_run, photos, keep=["number"])
    folder = tmp_path / "in"
    shutil.copytree(photos / "dög", folder)
    (folder / "00.jpg").write_bytes((folder / "00.jpg").read_bytes()[:100])
    (folder / "01.jpg").write_text("no picture")
    (folder / "02.png").write_bytes(b"")
    Image.new("F", (20, 20)).save(folder / "03.tiff")
    inputs = [tmp_path / "gone.png", folder, tmp_path / "in" / "07.jpg", tmp_path]
    (tmp_path / "new\x1b[31m.txt").write_text("\n")
    found = predicted(photo_run, *inputs, tmp_path / "new\x1b[31m.txt")
    frame = pd.DataFrame(found.rows).set_index("input")
    errors = frame["error"].dropna()
    assert frame.index.tolist().count(str(folder / "07.jpg")) == 3, "one row each time that it is named"
    assert (frame["prediction"].notna() != frame["error"].notna()).all()
    depth = "its values are real numbers (Pillow's mode F); expected 8 or 16 bits"
    assert {str(name).rpartition("/")[2]: error for name, error in errors.items()} == {
        "gone.png": "cannot be read as an image: No such file or directory",
        "00.jpg": errors[str(folder / "00.jpg")].iloc[0],
        "01.jpg": "cannot be read as an image: it is not an image",
        "02.png": "cannot be read as an image: it is empty",
        "03.tiff": f"cannot be read as an image: {depth}",
        "new\x1b[31m.txt": "cannot be read as an image: it is not an image",
    }
    assert found.first_error.startswith(f"{tmp_path / 'gone.png'}: cannot be read")


def test_what_is_bad_in_a_table_is_a_row(kind_run: Trained, table: Path, tmp_path: Path) -> None:
    lines = (table / "rows.csv").read_text().splitlines()
    header = lines[0].split(",")
    good = lines[1:40]

    def changed(line: str, name: str, value: str) -> str:
        cells = line.split(",")
        cells[header.index(name)] = value
        return ",".join(cells)

    rows = list(good)
    rows[3] = changed(rows[3], "rooms", "many")
    rows[5] = changed(rows[5], "district", "Mars")
    rows[9] = changed(rows[9], "since", "yesterday")
    rows[11] = changed(rows[11], "size", "1e300")
    rows[13] = changed(rows[13], "garden", "perhaps")
    rows[15] = changed(rows[15], "rooms", "")
    rows[17] = changed(rows[17], "size", "1e9")
    (tmp_path / "bad.csv").write_text("\n".join([lines[0], *rows]) + "\n")
    found = predicted(kind_run, tmp_path / "bad.csv")
    frame = pd.DataFrame(found.rows)
    assert frame["error"].dropna().to_dict() == {
        3: "'rooms' is 'many', not a number",
        9: "'since' is 'yesterday', not a date such as 2024-12-31",
        11: "'size' is '1e+300', which is too large",
        13: "'garden' is 'perhaps', not a number",
    }
    counts = "it counts as none of the known ones"
    assert frame["warning"].dropna().to_dict() == {
        5: f"'district' is 'Mars', which no training row has: {counts}",
        15: "'rooms' is missing, although no training row lacks it; it is filled in",
        17: frame["warning"][17],
    }
    assert re.fullmatch(
        r"'size' is '1000000000\.0', far outside the training range, [\d.]+ to [\d.]+", frame["warning"][17]
    )
    assert frame["row"].tolist() == list(range(39))


@pytest.fixture(scope="module")
def first_rows(
    kind_run: Trained, table: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Predictor, pd.DataFrame]:
    """A predictor, and what it says of twelve rows."""
    path = tmp_path_factory.mktemp("first") / "plain.csv"
    frame = pd.read_csv(table / "rows.csv", dtype=str, keep_default_na=False).head(12)
    frame.to_csv(path, index=False)
    predictor = assay.load(kind_run.run_dir, map_location="cpu")
    return predictor, pd.DataFrame(predict(predictor, kind_run.run_dir, [path]).rows)


@given(st.data())
@settings(max_examples=12)
def test_the_order_of_columns_and_blank_lines_change_nothing(
    kind_run: Trained,
    first_rows: tuple[Predictor, pd.DataFrame],
    table: Path,
    tmp_path_factory: pytest.TempPathFactory,
    data: st.DataObject,
) -> None:
    """Also around rows that a quoted line break divides; rows that are too long or too short are refused."""
    frame = pd.read_csv(table / "rows.csv", dtype=str, keep_default_na=False).head(12)
    folder = tmp_path_factory.mktemp("order")
    predictor, expected = first_rows
    frame["remark"] = data.draw(st.lists(st.sampled_from(["", "a\n\nb", 'c"\n']), min_size=12, max_size=12))
    frame = frame[data.draw(st.permutations(list(frame.columns)))]
    header, *rows = [
        buffer.getvalue()
        for record in [list(frame.columns), *frame.itertuples(index=False)]
        if csv.writer(buffer := StringIO(), lineterminator="\n").writerow(record)
    ]
    bad = data.draw(st.sampled_from([None, None, *range(12)]))
    if bad is not None:
        rows[bad] = f"1,{rows[bad]}" if bad % 2 else "1\n"
    blank = data.draw(st.lists(st.integers(0, 3), min_size=13, max_size=13))
    (folder / "x.csv").write_text(
        "".join(
            ["\n" * blank[12], header, *("\n" * count + row for count, row in zip(blank, rows, strict=False))]
        )
    )
    found = pd.DataFrame(predict(predictor, kind_run.run_dir, [folder / "x.csv"]).rows)
    if bad is not None:
        [error] = found["error"]
        assert f"1 of 12 rows have more or fewer: first row {bad} " in error
        return
    assert found["row"].tolist() == list(range(12))
    pd.testing.assert_frame_equal(found.drop(columns="input"), expected.drop(columns="input"))


def test_an_encoding_that_is_not_that_of_training(
    kind_run: Trained, yes_no_run: Trained, table: Path, tmp_path: Path
) -> None:
    (tmp_path / "latin.csv").write_text((table / "rows.csv").read_text("utf-8"), "latin-1")
    runner, run = CliRunner(), str(kind_run.run_dir)
    told = runner.invoke(app, ["predict", run, str(tmp_path / "latin.csv"), "--json"])
    errors = {row["error"] for row in json.loads(told.stdout)["rows"]} - {None}
    assert errors == {"'district' is 'S\ufffdd', which is not text in UTF-8 (--encoding names another)"}
    latin = runner.invoke(
        app, ["predict", run, str(tmp_path / "latin.csv"), "--json", "--encoding", "latin-1"]
    )
    plain = runner.invoke(app, ["predict", run, str(table / "rows.csv"), "--json"])
    assert [{**row, "input": ""} for row in json.loads(latin.stdout)["rows"]] == [
        {**row, "input": ""} for row in json.loads(plain.stdout)["rows"]
    ]
    unknown = runner.invoke(app, ["predict", run, str(table / "rows.csv"), "--encoding", "latin-x"])
    assert "--encoding: unknown encoding: latin-x" in unknown.stderr
    arrays = runner.invoke(app, ["predict", str(yes_no_run.run_dir), "x.csv", "--encoding=latin-1"])
    assert "--encoding: the model reads no tables" in arrays.stderr


NOT_FOR = "unsupported input: expected"


@pytest.mark.parametrize(
    ("name", "file", "message"),
    [
        (
            "kind_run",
            "a.csv:size;rooms\n1;2\n",
            "the table has no columns 'code', 'district', 'garden', 'since'",
        ),
        ("kind_run", "a.csv:", "is empty"),
        ("kind_run", "a.csv:HEADER\n", "it has no rows"),
        ("kind_run", "a.parquet:PAR1", "cannot be read: "),
        ("kind_run", "a.png:", f"{NOT_FOR} CSV, JSONL, Parquet, Feather or Excel files"),
        ("photo_run", "a.csv:", f"{NOT_FOR} pictures, or .npy or .npz files"),
        ("yes_no_run", "a.csv:", f"{NOT_FOR} .npy or .npz files of arrays [N, 30]"),
    ],
)
def test_a_file_that_cannot_be_read_is_a_row(
    name: str, file: str, message: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """Named once, and what comes after it is predicted."""
    table: Path = request.getfixturevalue("table")
    header = (table / "rows.csv").read_text().splitlines()[0]
    file, _, content = file.partition(":")
    (tmp_path / file).write_text(content.replace("HEADER", header))
    more = [table / "rows.csv"] if name == "kind_run" else []
    found = predicted(request.getfixturevalue(name), tmp_path / file, *more)
    assert (found.num_samples, found.num_failed) == (1 + 300 * len(more), 1)
    assert found.first_error.startswith(f"{tmp_path / file}: {message}")
    assert found.first_error.count(file) == 1


def test_tables_of_a_folder(kind_run: Trained, table: Path, tmp_path: Path) -> None:
    for name in ("b.csv", "a.parquet", "note.txt", ".hidden.csv"):
        original = table / ("rows.parquet" if "parq" in name else "rows.csv")
        (tmp_path / name).write_bytes(original.read_bytes())
    found = predicted(kind_run, tmp_path)
    assert f"{tmp_path}: 1 file skipped (1 .txt)" in found.notes
    frame = pd.DataFrame(found.rows)
    assert frame["input"].unique().tolist() == [str(tmp_path / "a.parquet"), str(tmp_path / "b.csv")]
    assert frame["probability"][:300].tolist() == frame["probability"][300:].tolist()
    (tmp_path / "empty").mkdir()
    assert "no supported files in this folder" in predicted(kind_run, tmp_path / "empty").first_error


def test_rows_of_arrays_that_are_bad(yes_no_run: Trained, tmp_path: Path) -> None:
    inputs = np.random.default_rng(0).random((20, 30))
    inputs[4, 2] = np.nan
    np.save(tmp_path / "some.npy", inputs)
    np.save(tmp_path / "other.npy", inputs[:, :7])
    np.save(tmp_path / "object.npy", np.array([{}]), allow_pickle=True)
    found = predicted(yes_no_run, *(tmp_path / f"{name}.npy" for name in ("some", "other", "object")))
    errors = [(row["input"].rpartition("/")[2], row["error"][:32]) for row in found.rows if row["error"]]
    assert errors == [
        ("some.npy", "the model's output is not finite"),
        ("other.npy", "the input has shape (20, 7); the"),
        ("object.npy", "cannot be read: Array can't be made read"[:32]),
    ]
    assert found.num_samples == 22


def test_a_file_that_cannot_be_written(photo_run: Trained, photos: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"--out: .*a name that ends in \.parquet, \.csv, \.jsonl"):
        predicted(photo_run, photos, out=tmp_path / "found.xlsx")
    (tmp_path / "x.csv").write_text("a")
    with pytest.raises(ConfigError, match="is one of the inputs"):
        predicted(photo_run, tmp_path / "x.csv", out=tmp_path / "x.csv")
    kept = photo_run.run_dir / FILE
    before = kept.read_bytes()
    with pytest.raises(ConfigError, match="that the run or sweep itself writes"):
        predicted(photo_run, photos, out=kept)
    assert kept.read_bytes() == before


def test_a_name_that_is_not_utf8_is_escaped(photo_run: Trained, photos: Path, tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    shutil.copy(photos / "dög/01.jpg", folder / os.fsdecode(b"caf\xe9.jpg"))
    (folder / os.fsdecode(b"bad \xff.jpg")).write_text("no picture")
    out = tmp_path / "found.csv"
    typed = ["predict", photo_run.run_dir, folder]
    shown = CliRunner().invoke(app, [*map(str, typed)])
    said = CliRunner().invoke(app, [*map(str, typed), "--out", str(out)])
    assert (shown.exit_code, said.exit_code) == (0, 0), (shown.stderr, said.stderr)
    assert "caf\\udce9.jpg" in shown.stdout
    frame = pd.read_csv(out)
    assert frame["input"].tolist() == [f"{folder}/bad \\udcff.jpg", f"{folder}/caf\\udce9.jpg"]
    assert frame["prediction"].isna().tolist() == [True, False]


def held() -> int:
    """Bytes that this process still needs: of Python and NumPy, and of tensors."""
    gc.collect()
    tensors = (one.untyped_storage() for one in gc.get_objects() if type(one) is torch.Tensor)
    return tracemalloc.get_traced_memory()[0] + sum(
        {one.data_ptr(): one.nbytes() for one in tensors}.values()
    )


def test_memory_does_not_grow_with_the_input(yes_no_run: Trained, tmp_path: Path) -> None:
    path, size, seen = tmp_path / "large.npy", 60_000, list[int]()
    np.lib.format.open_memmap(path, "w+", np.float64, (size, 30)).flush()  # 14 MB of a hole: no disk
    predictor = assay.load(yes_no_run.run_dir, map_location="cpu")
    predict(predictor, yes_no_run.run_dir, [path], limit=10_000)  # what is imported and kept for good

    def look(num_samples: int) -> None:
        if num_samples >= size * (1 + len(seen)) // 4:
            seen.append(held())

    out = tmp_path / "found.parquet"
    tracemalloc.start()
    try:
        found = predict(predictor, yes_no_run.run_dir, [path], out=out, batch_size=4096, progress=look)
    finally:
        tracemalloc.stop()
    assert (found.num_samples, found.num_failed) == (size, 0)
    assert max(seen[:3]) - seen[0] < 2 << 20  # half of the input is 7 MB
