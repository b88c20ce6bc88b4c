"""What differs between tasks stands in `assay.task` alone."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from assay.task.task_of import TASKS

SRC = Path(__file__).parents[2] / "src" / "assay"


def branches(tree: ast.AST) -> list[str]:
    """Comparisons with the name of a task, cases of a match, and tables with an entry for each."""
    found = []
    for node in ast.walk(tree):
        asked: list[ast.expr | None] = []
        if isinstance(node, ast.Compare):
            asked = [node.left, *node.comparators]
        elif isinstance(node, ast.MatchValue):
            asked = [node.value]
        elif isinstance(node, ast.Dict):
            asked = node.keys
        constants = [one for value in asked if value is not None for one in ast.walk(value)]
        if any(isinstance(one, ast.Constant) and one.value in TASKS for one in constants):
            found.append(f"line {getattr(node, 'lineno', 0)}: {ast.unparse(node)[:80]}")
    return found


def test_nobody_else_asks_which_task_it_is() -> None:
    paths = {path.relative_to(SRC).as_posix(): path for path in SRC.rglob("*.py")}
    elsewhere = {name: path for name, path in paths.items() if not name.startswith("task/")}
    assert len(elsewhere) > 100
    found = {name: branches(ast.parse(path.read_bytes())) for name, path in elsewhere.items()}
    assert not {name: lines for name, lines in found.items() if lines}


@pytest.mark.parametrize(
    "code",
    [
        'spec.task == "multiclass"',
        'x if "binary" != task else y',
        'task in ("multiclass", "binary")',
        'task not in frozenset({"regression"})',
        '{"multilabel": 1, "regression": 2}[task]',
        'match task:\n    case "binary" | "multiclass":\n        pass',
    ],
)
def test_the_search_finds_it(code: str) -> None:
    assert branches(ast.parse(code))


def test_naming_a_task_is_no_question() -> None:
    assert not branches(ast.parse('task: TaskName = "multiclass"\nTASKS = {"iris": "multiclass"}'))
