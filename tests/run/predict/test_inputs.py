"""Which files are looked for, and that no more of them is read than is needed."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

import assay
from assay.run.predict.inputs import blocks

if TYPE_CHECKING:
    from pathlib import Path

    import pytest
    from tests.conftest import Trained


def preprocess_of(run: Trained) -> Any:
    return assay.load(run.run_dir, map_location="cpu").preprocess


def test_each_picture_once_in_order(photo_run: Trained, photos: Path) -> None:
    files = [one.path for one in photo_run.datamodule.source._list_subset("all", photos)]
    for size in (1, 5, 24, 100):
        found = list(blocks(preprocess_of(photo_run), [photos], size))
        assert [name for block in found for name in block.inputs] == files
        assert all(len(block.inputs) <= size for block in found)
        assert sum(len(block.samples) for block in found) == 48


def test_pictures_are_decoded_a_little_ahead(
    photo_run: Trained, photos: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a folder larger than memory no more is held than a few blocks."""
    preprocess, lock, begun = preprocess_of(photo_run), threading.Lock(), 0
    decode = type(preprocess).picture

    def counting(self: Any, raw: Any) -> Any:
        nonlocal begun
        with lock:
            begun += 1
        return decode(self, raw)

    monkeypatch.setattr(type(preprocess), "picture", counting)
    stream = blocks(preprocess, [photos], 4)
    for taken in range(1, 5):
        next(stream)
        assert begun <= 4 * (taken + 4)
    stream.close()
    assert begun < 40


def test_tables_of_a_folder(kind_run: Trained, table: Path, tmp_path: Path) -> None:
    for name in ("b.csv", "a.parquet", "note.txt", ".hidden.csv"):
        original = table / ("rows.parquet" if "parq" in name else "rows.csv")
        (tmp_path / name).write_bytes(original.read_bytes())
    passed, *found = blocks(preprocess_of(kind_run), [tmp_path], 512)
    assert (passed.inputs, passed.note) == ([], f"{tmp_path}: 1 file passed over (1 .txt)")
    assert [block.inputs[0] for block in found] == [str(tmp_path / "a.parquet"), str(tmp_path / "b.csv")]
    np.testing.assert_array_equal(found[0].samples, found[1].samples)
    (tmp_path / "empty").mkdir()
    [block] = blocks(preprocess_of(kind_run), [tmp_path / "empty"], 512)
    assert block.errors == [
        "nothing in this folder is for the model: it takes CSV, JSONL, Parquet, Feather or Excel files"
    ]


def test_a_table_is_read_in_chunks(kind_run: Trained, table: Path, tmp_path: Path) -> None:
    many = pd.concat([pd.read_csv(table / "rows.csv", dtype=str)] * 240, ignore_index=True)
    many.to_csv(tmp_path / "many.csv", index=False)
    found = list(blocks(preprocess_of(kind_run), [tmp_path / "many.csv"], 100))
    assert [len(block.rows) for block in found] == [32_768, 32_768, 72_000 - 2 * 32_768]
    assert [row for block in found for row in block.rows] == list(range(72_000))
