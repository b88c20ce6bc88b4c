"""`src/assay/R/x.py` is tested by `tests/R/test_x.py`, but for a list that may only shrink."""

from __future__ import annotations

import ast
from pathlib import Path

from tests.conftest import LONGEST

TESTS = Path(__file__).parents[1]
SOURCE = TESTS.parent / "src" / "assay"
TO_COME: tuple[str, ...] = (
    "loop/automatic_step.py",
    "loop/epoch_loop.py",
    "loop/evaluation_loop.py",
    "loop/install.py",
    "loop/lightning_internals.py",
)
"""Tested by what stands above them alone. A new file has a test file of its own."""


def without_tests() -> list[str]:
    """Files that define something and have no test file."""
    defining = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    found = []
    for path in sorted(SOURCE.rglob("*.py")):
        name = path.relative_to(SOURCE)
        defines = any(isinstance(node, defining) for node in ast.walk(ast.parse(path.read_bytes())))
        if defines and name.stem != "__init__" and not (TESTS / name.parent / f"test_{name.name}").is_file():
            found.append(name.as_posix())
    return found


def test_each_file_has_its_test_file() -> None:
    assert without_tests() == sorted(TO_COME), "add a test file; take out of the list what has one by now"


def test_the_longest_test_files_are_there() -> None:
    assert not [name for name in LONGEST if not (TESTS / name).is_file()]
