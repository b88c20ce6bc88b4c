"""A comparison as a Markdown table, as GitHub and GitLab show it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from assay.markdown import plain
from assay.report.table.cells import columns_of, sign_text

if TYPE_CHECKING:
    from assay.report.table.comparison import Comparison


def to_markdown(comparison: Comparison) -> str:
    """A table, and below it what is to be said of it."""
    header, rows = columns_of(comparison)
    names = len(comparison.columns)
    rule = ["---"] * names + ["---:"] * (len(header) - names)
    text = [_line(list(map(plain, header))), _line(rule)]
    text += [_line(list(map(plain, row))) for row in rows]
    said = [
        sign_text(comparison),
        comparison.verdict.text,
        *comparison.notes,
        *(f"broken: {run.path}: {run.reason}" for run in comparison.broken),
    ]
    text += [f"\n{plain(one)}" for one in said if one]
    return "\n".join(text) + "\n"


def _line(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"
