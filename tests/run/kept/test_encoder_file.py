from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from assay.data.tabular.table_encoder import TableEncoder
from assay.errors import AssayError
from assay.run.encoder_file import FILE, read_encoder, write_encoder

ROWS = pd.DataFrame({"size": [1.5, 2.0, 7.0], "Straße": ["Köln", "Ulm", "Köln"]})


@pytest.fixture
def written(tmp_path: Path) -> Path:
    encoder = TableEncoder()
    encoder.fit(ROWS, np.arange(2))
    write_encoder(tmp_path, encoder)
    return tmp_path / FILE


def test_what_was_learned_comes_back(written: Path) -> None:
    encoder = TableEncoder()
    encoder.fit(ROWS, np.arange(2))
    back = read_encoder(written.parent)
    assert isinstance(back, TableEncoder)
    assert torch.equal(back.transform(ROWS), encoder.transform(ROWS))
    assert "Köln" in written.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "change",
    [lambda text: text.replace("Ulm", "Uhm"), lambda text: text[:-20], lambda _: "{}", lambda _: "["],
)
def test_a_changed_file_is_refused(written: Path, change: object) -> None:
    written.write_text(change(written.read_text(encoding="utf-8")), encoding="utf-8")  # type: ignore[operator]  # a lambda
    with pytest.raises(AssayError, match=r"encoder\.json (is damaged|cannot be read)"):
        read_encoder(written.parent)


def test_a_table_has_one(written: Path) -> None:
    written.unlink()
    with pytest.raises(AssayError, match=r"encoder\.json is not there"):
        read_encoder(written.parent, must_be=True)
    written.mkdir()
    for must_be in (True, False):
        with pytest.raises(AssayError, match=r"encoder\.json cannot be read: .*not a regular file"):
            read_encoder(written.parent, must_be=must_be)


def test_a_run_without_a_table_has_none(tmp_path: Path) -> None:
    write_encoder(tmp_path, None)
    assert read_encoder(tmp_path) is None
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["before_csv_files", "before_dates"])
def test_files_of_earlier_versions_mean_what_they_meant(tmp_path: Path, name: str) -> None:
    """`encoders/` has what earlier versions wrote of these rows; the numbers are what they made of them."""
    shutil.copy(Path(__file__).parents[1] / "encoders" / f"{name}.json", tmp_path / FILE)
    encoder = read_encoder(tmp_path)
    assert isinstance(encoder, TableEncoder)
    rows = pd.DataFrame(
        {
            "size": [1.5, 2.0, None, 7.0],
            "Straße": ["Köln", "Ulm", None, "Köln"],
            "garden": [True, False, True, True],
            "rooms": [1, 2, 3, 5],
        }
    )
    assert encoder.transform(rows).tolist() == [
        *([1.5, 1, 1, 1, 0], [2, 0, 2, 0, 1], [2, 1, 3, 1, 0]),
        [7, 1, 5, 1, 0],
    ]
