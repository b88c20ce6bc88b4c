"""The sum beside a checkpoint: as `sha256sum` writes it, and read only when all of it is."""

import hashlib
from pathlib import Path

import pytest

from assay.files.checksum import damage, read_sums, sha256, sums_of_content, write_sums

A, B = (hashlib.sha256(text).hexdigest() for text in (b"a", b"b"))


def test_what_is_written_is_read(tmp_path: Path) -> None:
    path = tmp_path / "a [b].ckpt"
    write_sums(path, [A, B])
    assert (tmp_path / "a [b].ckpt.sha256").read_text() == f"{A}  a [b].ckpt\n{B}  a [b].ckpt\n"
    assert read_sums(path) == [A, B]
    assert sha256(path) == A


@pytest.mark.parametrize(
    "text",
    ["", A, f"{A}  other\n", f"{A}  x\n\n", f"{A} x\n", f"{A.upper()}  x\n", f"{A}  x", f"# c\n{A}  x\n"],
)
def test_anything_else_is_damage(tmp_path: Path, text: str) -> None:
    path = tmp_path / "x"
    path.write_bytes(b"a")
    (tmp_path / "x.sha256").write_text(text)
    assert read_sums(path) == []
    assert sums_of_content(path) == [], "not made right by taking the sum anew"
    with path.open("rb") as file:
        assert damage(path, file) == "cannot be verified: x.sha256 is damaged"


@pytest.mark.parametrize(
    ("content", "sums", "reason"), [(b"a", [A], ""), (b"b", [A, B], ""), (b"c", [A], "is damaged")]
)
def test_whether_it_is_whole(tmp_path: Path, content: bytes, sums: list[str], reason: str) -> None:
    path = tmp_path / "x"
    path.write_bytes(content)
    write_sums(path, sums)
    with path.open("rb") as file:
        found = damage(path, file)
    assert found.startswith(reason)
    assert bool(found) == bool(reason)
