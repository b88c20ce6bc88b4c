"""LaTeX of a comparison: no command of a user's, every cell in its column; compiled where LaTeX is."""

from __future__ import annotations

import re
import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest
from tests.report.table.hostile import TEXTS, hostile

from assay.report.comparison_formats import escaped, to_latex

if TYPE_CHECKING:
    from pathlib import Path

OURS = {
    *("begin", "end", "centering", "hline", "textbf", "caption", "ensuremath", "pm"),
    *("textbackslash", "textasciitilde", "textasciicircum"),
}


def test_only_commands_of_ours_and_every_brace_closed(tmp_path: Path) -> None:
    table = hostile(tmp_path)
    text = to_latex(table)
    assert set(re.findall(r"\\([A-Za-z]+)", text)) <= OURS
    bare = re.sub(r"\\[^A-Za-z]", "", text)
    assert bare.count("{") == bare.count("}")
    assert not set("#$^~_%") & set(bare)
    rows = [line for line in text.splitlines() if line.endswith(r" \\")]
    assert len(rows) == 1 + len(TEXTS)
    columns = re.search(r"\\begin\{tabular\}\{([lr]+)\}", text)
    assert columns is not None
    cells = {len(re.findall(r"(?<!\\)&", line)) + 1 for line in rows}
    assert cells == {len(columns[1])}
    assert not [line for line in rows if line.startswith(("*", "["))], "both are arguments of the line before"
    assert r"\textbf{" in text


def test_letters_stay_and_control_characters_do_not() -> None:
    assert escaped("Größe é") == "Größe é"
    assert escaped("\x1b") == r"\textbackslash{}x1b"


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="pdflatex is not installed")
def test_it_compiles_as_it_is(tmp_path: Path) -> None:
    body = to_latex(hostile(tmp_path / "runs"))
    document = f"\\documentclass{{article}}\\begin{{document}}\n{body}\\end{{document}}\n"
    (tmp_path / "page.tex").write_text(document, encoding="utf-8")
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "page.tex"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:]
