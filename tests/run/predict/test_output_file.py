"""A file of predictions is there as a whole, or not at all."""

from __future__ import annotations

import io
import os
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pytest
from tests.file_size import room_for

from assay.errors import AssayError, ConfigError
from assay.run.predict.output_file import SUFFIXES, as_table, check_name, writing, writing_beside
from assay.task.prediction.mask_prediction import MaskPredictions
from assay.terminal import Console

if TYPE_CHECKING:
    from pathlib import Path

pytest.importorskip("resource")
READ: dict[str, Any] = {
    ".csv": lambda path: pd.read_csv(path, keep_default_na=False, na_values=[""]),
    ".parquet": pd.read_parquet,
    ".jsonl": lambda path: pd.read_json(path, lines=True, dtype={"input": str}),
}
TEXT = '<script>,"\n\x1b[31m=1+1 ü'


def some(start: int, count: int) -> pd.DataFrame:
    """The first rows fail, so that a column begins with nothing."""
    draw = np.random.default_rng(start)
    errors = np.array(["bad" if row < 2 and not start else None for row in range(count)], dtype=object)
    values = draw.random(count, dtype=np.float32) * np.float32(1e-9)
    return pd.DataFrame(
        {
            "input": [TEXT] * count,
            "row": pd.array([None, *range(start + 1, start + count)], dtype="Int64"),
            "prediction": [None if error else TEXT for error in errors],
            "probability": np.where(pd.isna(errors), values, np.float32("nan")),
            "error": errors,
        }
    )


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_all_rows_come_back(tmp_path: Path, suffix: str) -> None:
    path, parts = tmp_path / "new" / f"x{suffix}", [some(0, 2), some(0, 30), some(30, 40)]
    with writing(path) as add:
        for part in parts:
            add(part)
            assert not path.exists()
    found, whole = READ[suffix](path), pd.concat(parts, ignore_index=True)
    assert list(found.columns) == list(whole.columns)
    for name in ("input", "prediction", "error"):
        texts = found[name].astype(object).where(found[name].notna(), None)
        assert texts.tolist() == whole[name].astype(object).where(whole[name].notna(), None).tolist()
    np.testing.assert_allclose(found["probability"].astype(float), whole["probability"], rtol=1e-6)
    assert found["row"].fillna(-1).tolist() == whole["row"].fillna(-1).tolist()
    assert [one.name for one in path.parent.iterdir()] == [path.name]


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("room", [0, 2000])
def test_a_full_disk_leaves_nothing(tmp_path: Path, suffix: str, room: int) -> None:
    path = tmp_path / f"x{suffix}"
    path.write_text("before")

    def write_all() -> None:
        with writing(path) as add:
            for start in range(0, 10000, 500):
                add(some(start, 500))

    with room_for(room), pytest.raises(AssayError, match="cannot be written: File too large"):
        write_all()
    assert path.read_text() == "before"
    assert [one.name for one in tmp_path.iterdir()] == [path.name]


def test_what_is_interrupted_leaves_nothing(tmp_path: Path) -> None:
    def stop() -> None:
        with writing(tmp_path / "x.parquet") as add:
            add(some(0, 5))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        stop()
    assert not list(tmp_path.iterdir())


def test_names(tmp_path: Path) -> None:
    check_name(tmp_path / "x.PARQUET")
    with pytest.raises(ConfigError, match=r"ends in \.parquet, \.csv, \.jsonl") as caught:
        check_name(tmp_path / "x.txt")
    assert caught.value.hint == f"--out {tmp_path / 'x.csv'}"
    (tmp_path / "x.csv").mkdir()
    with pytest.raises(ConfigError, match="is a folder"):
        check_name(tmp_path / "x.csv")


def test_a_spreadsheet_runs_no_cell(tmp_path: Path) -> None:
    with writing(tmp_path / "out.csv") as add:
        add(pd.DataFrame({"row": ["=1+1", "b"], "prediction": ["@x", "y"], "value": [-0.5, 1.0]}))
    assert (tmp_path / "out.csv").read_text() == "row,prediction,value\n'=1+1,'@x,-0.5\nb,y,1.0\n"


FOUND = MaskPredictions(np.random.default_rng(0).random((3, 2, 4, 4), dtype=np.float32), ("a", "b"))


def test_inputs_of_the_same_name_have_files_of_their_own(tmp_path: Path) -> None:
    with writing_beside(tmp_path / "out.csv", "mask") as files:
        names = files.add(["x/a b.jpg", "y/a b.png", "y/A B.png"], FOUND)
        files.finish()
    assert names == ["out_masks/a b.png", "out_masks/a b_2.png", "out_masks/A B_3.png"]
    assert [(tmp_path / name).read_bytes() for name in names] == [FOUND.file_of(at) for at in range(3)]
    with (
        pytest.raises(ConfigError, match="exists, with other predictions"),
        writing_beside(tmp_path / "out.csv", "mask"),
    ):
        pass


@pytest.mark.parametrize("is_finished", [False, True])
def test_nothing_is_left_of_what_fails(tmp_path: Path, *, is_finished: bool) -> None:
    with suppress(RuntimeError), writing_beside(tmp_path / "out.csv", "mask") as files:
        files.add(["a", "b", "c"], FOUND)
        if is_finished:
            files.finish()
        raise RuntimeError
    assert not [*tmp_path.iterdir()]


def test_files_are_there_before_the_table_that_names_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    there: list[list[str]] = []
    replace = os.replace

    def see(source: Path, target: Path) -> None:
        there.append(sorted(path.name for path in (tmp_path / "out_masks").iterdir()))
        replace(source, target)

    monkeypatch.setattr(os, "replace", see)
    with (
        writing_beside(tmp_path / "out.csv", "mask") as files,
        writing(tmp_path / "out.csv", files.finish) as add,
    ):
        add(pd.DataFrame({"mask": files.add(["a", "b", "c"], FOUND)}))
    assert there == [["a.png", "b.png", "c.png"]]
    assert len(pd.read_csv(tmp_path / "out.csv")) == 3


def test_a_table_that_cannot_be_written_leaves_no_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with (
        pytest.raises(AssayError, match="No space left"),
        writing_beside(tmp_path / "out.csv", "mask") as files,
        writing(tmp_path / "out.csv", files.finish) as add,
    ):
        add(pd.DataFrame({"mask": files.add(["a", "b", "c"], FOUND)}))
    assert not [*tmp_path.iterdir()]


def shown(rows: list[dict[str, object]]) -> str:
    out = io.StringIO()
    Console(file=out, width=200).print(as_table(list(rows[0]), rows))
    return out.getvalue()


def test_what_is_shown() -> None:
    rows: list[dict[str, object]] = [
        {
            "input": "[bold]a\x1b[31m_png",
            "row": None,
            "prediction": "<b>cat",
            "probability": 0.123456,
            "probability <b>cat": 0.123456,
            "error": None,
        },
        {
            **dict.fromkeys(("row", "prediction", "probability", "probability <b>cat")),
            "input": "b",
            "error": "it is empty",
        },
    ]
    lines = shown(rows).splitlines()
    assert lines[0].split() == ["input", "prediction", "probability", "error"]
    assert lines[1].split() == ["[bold]a\\x1b[31m_png", "<b>cat", "0.1235"]
    assert lines[2].split() == ["b", "it", "is", "empty"]
