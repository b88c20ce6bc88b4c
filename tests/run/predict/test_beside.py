"""Files beside a table: all or none, none in the place of another."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

import numpy as np
import pytest

from assay.errors import ConfigError
from assay.run.predict.beside import writing_beside
from assay.task.prediction.mask_prediction import MaskPredictions

if TYPE_CHECKING:
    from pathlib import Path

FOUND = MaskPredictions(np.random.default_rng(0).random((3, 2, 4, 4), dtype=np.float32), ("a", "b"))


def test_inputs_of_the_same_name_have_files_of_their_own(tmp_path: Path) -> None:
    with writing_beside(tmp_path / "out.csv", "mask") as files:
        names = files.add(["x/a b.jpg", "y/a b.png", "y/A B.png"], FOUND)
    assert names == ["out_masks/a b.png", "out_masks/a b_2.png", "out_masks/A B_3.png"]
    assert [(tmp_path / name).read_bytes() for name in names] == [FOUND.file_of(at) for at in range(3)]
    with pytest.raises(ConfigError, match="is there already"), writing_beside(tmp_path / "out.csv", "mask"):
        pass


def test_nothing_is_left_of_what_fails(tmp_path: Path) -> None:
    with suppress(RuntimeError), writing_beside(tmp_path / "out.csv", "mask") as files:
        files.add(["a", "b", "c"], FOUND)
        raise RuntimeError
    assert not [*tmp_path.iterdir()]
