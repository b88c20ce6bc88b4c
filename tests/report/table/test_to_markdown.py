"""Markdown of a comparison: every row has the same cells, whatever stands in them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from tests.report.table.hostile import TEXTS, hostile

from assay.report.table.to_markdown import to_markdown

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
