"""A file of predictions is there as a whole, or not at all."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pytest
from tests.mounting import room_for

from assay.errors import AssayError, ConfigError
from assay.task.predictions import MaskPredictions
from assay_serve.predict import SUFFIXES, open_predictions

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
    with open_predictions(path) as file:
        for part in parts:
            file.add(part)
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
        with open_predictions(path) as file:
            for start in range(0, 10000, 500):
                file.add(some(start, 500))

    with room_for(room), pytest.raises(AssayError, match=r"cannot be written: .*File too large"):
        write_all()
    assert path.read_text() == "before"
    assert [one.name for one in tmp_path.iterdir()] == [path.name]


def test_a_spreadsheet_runs_no_cell(tmp_path: Path) -> None:
    with open_predictions(tmp_path / "out.csv") as file:
        file.add(pd.DataFrame({"row": ["=1+1", "b"], "prediction": ["@x", "y"], "value": [-0.5, 1.0]}))
    assert (tmp_path / "out.csv").read_text() == "row,prediction,value\n'=1+1,'@x,-0.5\nb,y,1.0\n"


FOUND = MaskPredictions(np.random.default_rng(0).random((3, 2, 4, 4), dtype=np.float32), ("a", "b"))


def write_masks(path: Path, names: list[str]) -> list[str]:
    with open_predictions(path, "mask") as file:
        places = file.add_files(names, FOUND)
        file.add(pd.DataFrame({"mask": places}))
    return places


def test_inputs_of_the_same_name_have_files_of_their_own(tmp_path: Path) -> None:
    names = write_masks(tmp_path / "out.csv", ["x/a b.jpg", "y/a b.png", "y/A B.png"])
    assert names == ["out_masks/a b.png", "out_masks/a b_2.png", "out_masks/A B_3.png"]
    assert [(tmp_path / name).read_bytes() for name in names] == [FOUND.file_of(at) for at in range(3)]
    with pytest.raises(ConfigError, match="exists, with other predictions"):
        write_masks(tmp_path / "out.csv", ["a", "b", "c"])


def test_files_and_their_table_are_there_together_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(type(tmp_path), "replace", full)
        with pytest.raises(AssayError, match="No space left"):
            write_masks(tmp_path / "out.csv", ["a", "b", "c"])
    with suppress(RuntimeError), open_predictions(tmp_path / "out.csv", "mask") as file:
        file.add_files(["a", "b", "c"], FOUND)
        raise RuntimeError
    assert not [*tmp_path.iterdir()]
