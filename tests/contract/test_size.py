"""The project is not larger than its budget, and the budget follows where the project becomes smaller."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from tests.contract.size import ROOT, code_lines, count, docstring_lines, lower_budget, problems, read_budget

if TYPE_CHECKING:
    from pathlib import Path

SOURCE = '''"""A module.

With more to say.
"""

# A comment.
TEXT = """not a docstring

# nor a comment
"""


class Thing:
    """A thing."""

    size = 1  # in lines
    """Of the thing: neither code nor the docstring of a class, but tokens."""

    def double(
        self,
    ) -> int:
        """Twice."""
        return 2 * self.size
'''


def test_the_project_is_within_its_budget() -> None:
    found = problems(count(ROOT), read_budget(ROOT))
    assert not found, "\n".join(found)


def test_what_counts_as_code_and_as_docstring() -> None:
    docstrings = docstring_lines(SOURCE)
    assert docstrings == {1, 2, 3, 4, 14, 22}
    assert code_lines(SOURCE, docstrings) == {7, 8, 9, 10, 13, 16, 17, 19, 20, 21, 23}


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A project exactly as large as its budget."""
    for folder, suffix, number in (("src", "py", 100), ("tests", "py", 100), ("conf", "yaml", 200)):
        (tmp_path / folder).mkdir()
        for index in range(number):
            path = tmp_path / folder / f"file_{index}.{suffix}"
            path.write_text('"""A file."""\n\nNUMBER = 1\n', encoding="utf-8")
    budget = "code = 100\ndocstrings = 100\nfiles = 100\ntests = 300\nyaml = 200\n"
    (tmp_path / "pyproject.toml").write_text(
        f"[tool.assay.size]\n{budget}\n[tool.other]\ncode = 7\n", encoding="utf-8"
    )
    assert not problems(count(tmp_path), read_budget(tmp_path))
    return tmp_path


@pytest.mark.parametrize(
    ("file", "text", "expected"),
    [
        ("src/file_0.py", '"""A file."""\n\nNUMBER = 1\nOTHER = 2\n', ["101 code lines in src, 1 more"]),
        ("src/file_0.py", '"""A file.\n\nMore.\n"""\n\nNUMBER = 1\n', ["103 docstring lines in src, 3 more"]),
        ("src/more.py", "", ["101 Python files in src, 1 more"]),
        ("tests/more.py", "NUMBER = 1\nOTHER = 2\n", ["302 lines in tests, 2 more"]),
        ("conf/group/more.yaml", "", ["201 YAML files in conf, 1 more"]),
    ],
)
def test_growth_is_refused(file: str, text: str, expected: list[str], tree: Path) -> None:
    path = tree / file
    path.parent.mkdir(exist_ok=True)
    path.write_text(text, encoding="utf-8")
    found = problems(count(tree), read_budget(tree))
    assert [re.split(" than ", problem)[0] for problem in found] == expected
    assert all("may only fall" in problem for problem in found)
    budget = (tree / "pyproject.toml").read_bytes()
    lower_budget(tree)
    assert (tree / "pyproject.toml").read_bytes() == budget


def test_the_budget_follows_a_fall(tree: Path) -> None:
    (tree / "conf/file_0.yaml").unlink()
    assert not problems(count(tree), read_budget(tree))  # within one per cent
    (tree / "conf/file_1.yaml").unlink()
    (found,) = problems(count(tree), read_budget(tree))
    assert found.startswith("198 YAML files in conf, 2 fewer")
    lower_budget(tree)
    text = (tree / "pyproject.toml").read_text(encoding="utf-8")
    assert "tests = 300\nyaml = 198\n\n[tool.other]\ncode = 7\n" in text
    assert not problems(count(tree), read_budget(tree))
