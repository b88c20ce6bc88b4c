"""Files beside a table: all or none, none in the place of another."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import pytest

from assay.errors import AssayError, ConfigError
from assay.run.predict.output_file import writing
from assay.run.predict.predict import writing_beside
from assay.task.prediction.mask_prediction import MaskPredictions

if TYPE_CHECKING:
    from pathlib import Path

FOUND = MaskPredictions(np.random.default_rng(0).random((3, 2, 4, 4), dtype=np.float32), ("a", "b"))


def test_inputs_of_the_same_name_have_files_of_their_own(tmp_path: Path) -> None:
    with writing_beside(tmp_path / "out.csv", "mask") as files:
        names = files.add(["x/a b.jpg", "y/a b.png", "y/A B.png"], FOUND)
        files.finish()
    assert names == ["out_masks/a b.png", "out_masks/a b_2.png", "out_masks/A B_3.png"]
    assert [(tmp_path / name).read_bytes() for name in names] == [FOUND.file_of(at) for at in range(3)]
    with pytest.raises(ConfigError, match="is there already"), writing_beside(tmp_path / "out.csv", "mask"):
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
