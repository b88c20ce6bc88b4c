"""A comparison as a Markdown table, as GitHub and GitLab show it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from assay.report.table.cells import columns_of
from assay.terminal import printable

if TYPE_CHECKING:
    from assay.report.table.comparison import Comparison

_MARKS: Final = re.compile(r"([\\`*_\[\]|~#])")


def to_markdown(comparison: Comparison) -> str:
    """A table, and below it what is to be said of it.

    Args:
        comparison: Of runs.
    """
    header, rows = columns_of(comparison)
    names = len(comparison.columns)
    rule = ["---"] * names + ["---:"] * (len(header) - names)
    text = [_line(list(map(escaped, header))), _line(rule)]
    text += [_line(list(map(escaped, row))) for row in rows]
    said = [
        comparison.verdict,
        *comparison.notes,
        *(f"broken: {run.path}: {run.reason}" for run in comparison.broken),
    ]
    text += [f"\n{escaped(one)}" for one in said if one]
    return "\n".join(text) + "\n"


def escaped(text: str) -> str:
    r"""Text that Markdown shows as it is.

    Args:
        text: Anything.

    >>> print(escaped("a|b <script> *x*"))
    a\|b &lt;script> \*x\*
    """
    plain = printable(text.replace("\n", " ")).replace("&", "&amp;")
    return _MARKS.sub(r"\\\1", plain).replace("<", "&lt;")


def _line(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"
