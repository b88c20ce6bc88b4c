"""Markdown of a comparison: every row has the same cells, whatever stands in them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from tests.making_runs import make_run
from tests.report.table.hostile import TEXTS, hostile

from assay.analysis.comparison import compare
from assay.analysis.read_runs import read_runs
from assay.report.comparison_formats import to_latex, to_markdown

if TYPE_CHECKING:
    from pathlib import Path


def test_hostile_text_stays_in_its_cell(tmp_path: Path) -> None:
    table = hostile(tmp_path)
    text = to_markdown(table)
    lines = [line for line in text.splitlines() if line.startswith("|")]
    assert len(lines) == 2 + len(TEXTS)
    assert len({len(re.findall(r"(?<!\\)\|", line)) for line in lines}) == 1
    assert "<script" not in text
    assert "\x1b" not in text
    assert "broken: " in text


def test_the_sign_between_two_numbers_is_explained_where_there_is_one(tmp_path: Path) -> None:
    make_run(tmp_path / "0", "seed=0", metrics={"val/loss": 0.1})
    assert "±" not in to_markdown(compare(read_runs([tmp_path])))
    assert "pm" not in to_latex(compare(read_runs([tmp_path])))
    make_run(tmp_path / "1", "seed=1", metrics={"val/loss": 0.2})
    both = compare(read_runs([tmp_path]))
    assert "\n± is half a 95 % interval of the mean (Student's t)\n" in to_markdown(both)
    assert r"\caption{\ensuremath{\pm} is half a 95 \% interval of the mean (Student's t)." in to_latex(both)
