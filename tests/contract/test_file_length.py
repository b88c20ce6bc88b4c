"""A file of `src` is a chapter: no more than 600 lines."""

from __future__ import annotations

from pathlib import Path

SOURCE = Path(__file__).parents[2] / "src" / "assay"


def test_no_file_is_long() -> None:
    lines = {
        path.relative_to(SOURCE).as_posix(): path.read_bytes().count(b"\n") for path in SOURCE.rglob("*.py")
    }
    assert not {name: number for name, number in lines.items() if number > 600}
