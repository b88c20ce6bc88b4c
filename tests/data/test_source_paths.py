from __future__ import annotations

import inspect
import os
from typing import TYPE_CHECKING, Any

import pytest

from assay.data.source_paths import SOURCE_PATHS, check_argument
from assay.errors import ConfigError
from assay.targets.resolve import resolve

if TYPE_CHECKING:
    from pathlib import Path

TABLE, FOLDER, ARRAYS = (
    f"assay.data.{name}" for name in ("table.Table", "image_folder.ImageFolder", "arrays.Arrays")
)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pictures").mkdir()
    (tmp_path / "folder.csv").mkdir()
    for name in ("rows.csv", "rows.csv.gz", "ROWS.PARQUET", "data.npz"):
        (tmp_path / name).touch()
    os.mkfifo(tmp_path / "pipe.csv")
    return tmp_path


@pytest.mark.parametrize(
    ("target", "argument", "path"),
    [
        (TABLE, "path", "rows.csv"),
        (TABLE, "test_path", "rows.csv.gz"),
        (TABLE, "path", "ROWS.PARQUET"),
        (FOLDER, "root", "pictures"),
        (ARRAYS, "root", "pictures"),
        (ARRAYS, "root", "data.npz"),
    ],
)
@pytest.mark.usefixtures("place")
def test_what_a_source_reads_passes(target: str, argument: str, path: str) -> None:
    check_argument(target, argument, path)


@pytest.mark.parametrize(
    ("target", "path", "says"),
    [
        (TABLE, "notes.pdf", "a .csv, .tsv, .jsonl, .parquet, .feather or .xlsx file was expected"),
        (TABLE, "row.csv", "did you mean 'rows.csv'"),
        (TABLE, "folder.csv", "is a folder"),
        (TABLE, "pipe.csv", "is not a regular file"),
        (FOLDER, "data.npz", "is not a folder"),
        (FOLDER, "picture/train", "has no 'picture'; did you mean 'pictures'"),
        (ARRAYS, "nothing", "no such file or folder"),
    ],
)
def test_anything_else_is_refused(place: Path, target: str, path: str, says: str) -> None:
    argument = "path" if target == TABLE else "root"
    with pytest.raises(ConfigError) as refused:
        check_argument(target, argument, path)
    assert says in refused.value.message
    assert refused.value.key == f"data.source.{argument}"
    assert path == "notes.pdf" or str(place / path) in refused.value.message


@pytest.mark.parametrize(
    ("target", "argument"), [(t, one.argument) for t in SOURCE_PATHS for one in SOURCE_PATHS[t]]
)
def test_every_argument_is_one_of_its_source(target: str, argument: str) -> None:

    source: Any = resolve("data.source", target)
    assert argument in inspect.signature(source).parameters
