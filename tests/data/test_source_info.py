from __future__ import annotations

import inspect
import os
from pathlib import Path
from typing import Any

import pytest
import yaml

from assay.data.source_info import SourceInfo, info_of
from assay.data.source_paths import SourcePath, check_path
from assay.errors import ConfigError
from assay.targets.resolve import resolve


def check_argument(target: str, argument: str, path: str) -> None:
    [source] = [one for one in info_of(target).paths if one.argument == argument]
    check_path(Path(path), source, f"data.source.{argument}")


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


@pytest.mark.parametrize("path", sorted(Path("conf/data").glob("*.yaml")), ids=lambda path: path.stem)
def test_what_a_source_declares_is_known_before_its_class_is_imported(path: Path) -> None:
    target = yaml.safe_load(path.read_text()).get("source", {}).get("_target_")
    if target is None or not target.startswith("assay."):
        return
    source: Any = resolve("data.source", target)
    assert info_of(target) == getattr(source, "info", SourceInfo())
    assert {one.argument for one in info_of(target).paths} <= set(inspect.signature(source).parameters)


def test_a_custom_source_declares_itself_by_its_attribute_info() -> None:
    assert info_of(_Pictures()).raw_input == "pictures"
    assert info_of(f"{_Pictures.__module__}._Pictures").paths[0].argument == "folder"
    assert info_of("nobody.Knows") == info_of(None) == SourceInfo()


class _Pictures:
    info = SourceInfo((SourcePath("folder", "a folder of pictures"),), raw_input="pictures")
