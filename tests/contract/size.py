"""How large the project is, and what it may be at most: the numbers of `[tool.assay.size]` in pyproject.toml.

`python -m tests.contract.size` prints both, and lowers the budget where the project has become smaller.
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
import tomllib
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

ROOT = Path(__file__).parents[2]
MEANING = {
    "tokens": "tokens in src, without comments and docstrings",
    "docstrings": "docstring lines in src",
    "files": "Python files in src",
    "tests": "lines in tests",
    "yaml": "YAML files in conf",
    "per_line": "tokens per 100 code lines of src",
    "conditionals": "conditional expressions per 10,000 code lines of src",
    "tuples": "assignments of several values to several names per 10,000 code lines of src",
}
SLACK = 1.01
"""A budget that is larger than this many times the count is not kept up to date."""
SILENT = frozenset(
    {
        tokenize.COMMENT,
        tokenize.NL,
        tokenize.NEWLINE,
        tokenize.INDENT,
        tokenize.DEDENT,
        tokenize.ENDMARKER,
    }
)


def docstring_lines(nodes: Iterable[ast.AST]) -> set[int]:
    lines: set[int] = set()
    for node in nodes:
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and (
            ast.get_docstring(node, clean=False) is not None
        ):
            statement = node.body[0]
            assert statement.end_lineno is not None
            lines.update(range(statement.lineno, statement.end_lineno + 1))
    return lines


def count_code(source: str, docstrings: set[int]) -> tuple[int, int]:
    """Count a file's tokens without comments, docstrings, line ends and indentation, and their lines."""
    count = 0
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in SILENT and token.start[0] not in docstrings:
            count += 1
            lines.update(range(token.start[0], token.end[0] + 1))
    return count, len(lines)


def is_packed(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.Assign)
        and isinstance(node.value, ast.Tuple)
        and isinstance(node.targets[0], ast.Tuple)
    )


def count(root: Path) -> dict[str, int]:
    """Count a formatted tree; the gate checks the format."""
    sources = [path.read_text(encoding="utf-8") for path in (root / "src").rglob("*.py")]
    nodes = [list(ast.walk(ast.parse(source))) for source in sources]
    docstrings = list(map(docstring_lines, nodes))
    tokens, lines = map(sum, zip(*map(count_code, sources, docstrings), strict=True))
    every = list(chain(*nodes))
    return {
        "tokens": tokens,
        "docstrings": sum(map(len, docstrings)),
        "files": len(sources),
        "tests": sum(path.read_bytes().count(b"\n") for path in (root / "tests").rglob("*.py")),
        "yaml": sum(1 for _ in (root / "conf").rglob("*.yaml")),
        "per_line": round(100 * tokens / lines),
        "conditionals": round(10_000 * sum(isinstance(node, ast.IfExp) for node in every) / lines),
        "tuples": round(10_000 * sum(map(is_packed, every)) / lines),
    }


def read_budget(root: Path) -> dict[str, int]:
    with (root / "pyproject.toml").open("rb") as file:
        budget: dict[str, int] = tomllib.load(file)["tool"]["assay"]["size"]
    return budget


def problems(counts: dict[str, int], budget: dict[str, int]) -> list[str]:
    """Where the project is larger than its budget, and where the budget has not followed a fall."""
    found = []
    for key, number in counts.items():
        place = f"`{key}` in [tool.assay.size] of pyproject.toml"
        if number > budget[key]:
            found.append(
                f"{number:,} {MEANING[key]}, {number - budget[key]:,} more than {place}."
                " The numbers there may only fall: an issue that adds a capability states what it may cost."
            )
        elif budget[key] > SLACK * number:
            found.append(
                f"{number:,} {MEANING[key]}, {budget[key] - number:,} fewer than {place}. Lower the number:"
                " python -m tests.contract.size"
            )
    return found


def lower_budget(root: Path) -> dict[str, int]:
    """Write each count that is below its budget; one that is above stays a problem."""
    counts, budget = count(root), read_budget(root)
    path = root / "pyproject.toml"
    head, mark, rest = path.read_text(encoding="utf-8").partition("[tool.assay.size]")
    section, bracket, tail = rest.partition("\n[")
    for key, number in counts.items():
        if number < budget[key]:
            section = re.sub(rf"^{key} = [\d_]+", f"{key} = {number}", section, flags=re.MULTILINE)
    path.write_text(head + mark + section + bracket + tail, encoding="utf-8")
    return counts


if __name__ == "__main__":
    before = read_budget(ROOT)
    counts = lower_budget(ROOT)
    after = read_budget(ROOT)
    for key, number in counts.items():
        change = f" (was {before[key]:,})" if before[key] != after[key] else ""
        print(f"{number:7,} {MEANING[key]}, of {after[key]:,}{change}")
    sys.exit("\n".join(problems(counts, after)) or None)
