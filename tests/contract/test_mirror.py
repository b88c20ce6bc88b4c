"""`src/assay/R/x.py` is tested by `tests/R/test_x.py`."""

from __future__ import annotations

import ast
from pathlib import Path

from tests.conftest import LONGEST

TESTS = Path(__file__).parents[1]
SOURCE = TESTS.parent / "src" / "assay"


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
    assert not without_tests(), "a new file has a test file of its own"


def test_the_longest_test_files_are_there() -> None:
    assert not [name for name in LONGEST if not (TESTS / name).is_file()]
