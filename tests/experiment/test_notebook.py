"""The cells of examples/notebook.ipynb, run one after another as a kernel runs them."""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

NOTEBOOK = Path(__file__).parents[2] / "examples/notebook.ipynb"


@pytest.fixture
def outputs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("agg")
    monkeypatch.chdir(tmp_path)
    cells = json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]
    names: dict[str, Any] = {}
    yield [run_cell("".join(cell["source"]), names) for cell in cells if cell["cell_type"] == "code"]
    matplotlib.pyplot.close("all")


def run_cell(source: str, names: dict[str, Any]) -> Any:
    """What a cell shows: the value of its last line."""
    tree = ast.parse(source)
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, "cell", "exec"), names)  # noqa: S102 - of this repository
    return None if last is None else eval(ast.unparse(last), names)  # noqa: S307 - as above


def test_every_cell_shows_what_it_says(outputs: list[Any]) -> None:
    _, metrics, labels, table, plot = outputs
    assert metrics["test/accuracy"] > 0.5
    assert len(labels) == 5
    assert sorted(table["name"]) == ["width_32", "width_8"]
    assert "_repr_html_" in dir(table)
    assert [len(line.get_xdata()) for line in plot.lines] == [8, 8]


def test_the_notebook_holds_no_outputs() -> None:
    cells = json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]
    assert not any(cell.get("outputs") or cell.get("execution_count") for cell in cells)
