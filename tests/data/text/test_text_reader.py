from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import pytest

from assay.data.text_files import find, read, standard_library
from assay.errors import DataError

if TYPE_CHECKING:
    from pathlib import Path


def test_files_come_in_the_order_of_their_names(tmp_path: Path) -> None:
    for name in ("b/x.txt", "a.txt", "b.txt", ".hidden", ".git/x.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(name)
    assert [name for name, _ in find(tmp_path, "**/*")] == ["a.txt", "b.txt", "b/x.txt"]
    assert find(tmp_path / "a.txt", "*") == [("a.txt", tmp_path / "a.txt")]


def test_the_hash_is_of_names_and_contents(tmp_path: Path) -> None:
    def digest() -> str:
        return read(find(tmp_path, "*"), "", skips=False)[1]

    (tmp_path / "a").write_text("xy")
    assert digest() == hashlib.sha256(b"1:a;2;xy").hexdigest()
    before = digest()
    (tmp_path / "a").rename(tmp_path / "b")
    assert digest() != before


def test_a_mark_of_the_byte_order_is_no_text(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("é\r\n", encoding="utf-8-sig", newline="")
    assert read(find(tmp_path, "*"), "", skips=False)[0][0].text == "é\r\n"


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"ok \xff")
    with pytest.raises(DataError, match="a is not UTF-8 at byte 3"):
        read(find(tmp_path, "*"), "here", skips=False)
    texts, _, notes = read(find(tmp_path, "*"), "here", skips=True)
    assert not texts
    assert "left out" in notes[0]


def test_the_standard_library_is_python_alone() -> None:
    files = standard_library("**/*.py")
    assert {"ast.py", "json/decoder.py"} <= {name for name, _ in files}
    assert not {name.split("/")[0] for name, _ in files} & {"test", "site-packages", "idlelib"}
    assert len(standard_library("json/*.py")) < 10
