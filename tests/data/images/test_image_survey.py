from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING

import numpy as np
import pytest
from PIL import Image

from assay.data import images
from assay.data.images import Look, look_at, read_bytes, survey

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def paths(tmp_path: Path) -> list[str]:
    folder = tmp_path / "pictures"
    folder.mkdir()
    made = []
    for number in range(70):  # more than one thread takes at a time
        path = folder / f"{number:02}.png"
        Image.fromarray(np.full((2 + number % 3, 5), number, np.uint8)).save(path)
        made.append(str(path))
    (folder / "33.png").write_bytes(b"hello")
    return made


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where looks are remembered, and at once."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(images, "_FEW", 0)
    monkeypatch.setattr(images, "_SETTLED", -1e6)
    return tmp_path / "cache" / "assay" / "pictures"


def check(looks: list[Look], paths: list[str]) -> None:
    assert looks[33].bad == "it is not an image"
    for number, (look, path) in enumerate(zip(looks, paths, strict=True)):
        if number != 33:
            with open(path, "rb") as file:  # noqa: PTH123 - as anybody would hash it
                digest = hashlib.file_digest(file, "sha256").hexdigest()
            assert look == Look(digest, several=False, size=(2 + number % 3, 5))


def test_every_file_is_looked_at_in_its_order(paths: list[str], tmp_path: Path) -> None:
    check(survey(tmp_path, paths), paths)


def test_each_file_is_taken_once_with_its_position(paths: list[str]) -> None:
    taken: list[int] = []

    def take(index: int, content: bytes) -> tuple[int, int]:
        taken.append(index)
        if content == b"hello":
            raise ValueError("odd")
        return index, len(content)

    looks = look_at(paths, take)
    assert sorted(taken) == list(range(70))
    assert [look.size[0] for look in looks] == [0 if n == 33 else n for n in range(70)]
    assert looks[33] == Look(bad="odd")


def test_what_is_whole_is_remembered_and_what_changed_is_read_again(
    paths: list[str], tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "pictures"
    first = survey(root, paths)
    check(first, paths)
    [file] = home.iterdir()
    assert len(json.loads(file.read_text())) == 69, "a bad file is read each time"
    read: list[str] = []

    def noted(path: str) -> bytes:
        read.append(path)
        return read_bytes(path)

    monkeypatch.setattr(images, "read_bytes", noted)
    assert survey(root, paths) == first
    assert read == [paths[33]]
    read.clear()
    Image.fromarray(np.full((2, 5), 200, np.uint8)).save(paths[0])
    again = survey(root, paths)
    assert sorted(read) == [paths[0], paths[33]]
    assert again[0].sha256 != first[0].sha256
    assert again[1:] == first[1:]


@pytest.mark.parametrize("content", ["", "[]", "{", '{"00.png": 3}', '{"00.png": [[], "", false, 7]}'])
def test_what_is_remembered_wrongly_is_made_anew(
    paths: list[str], tmp_path: Path, home: Path, content: str
) -> None:
    root = tmp_path / "pictures"
    survey(root, paths)
    [file] = home.iterdir()
    file.write_text(content)
    check(survey(root, paths), paths)
    assert len(json.loads(file.read_text())) == 69


def test_a_home_that_cannot_be_written(paths: list[str], tmp_path: Path, home: Path) -> None:
    home.parent.parent.mkdir()
    home.parent.touch()  # a file where a folder has to be
    check(survey(tmp_path / "pictures", paths), paths)
