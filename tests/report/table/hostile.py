"""Runs whose names, values, metrics and reasons are written to harm whoever prints them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tests.making_runs import make_run

from assay.analysis.comparison import compare
from assay.analysis.read_runs import read_runs

if TYPE_CHECKING:
    from pathlib import Path

    from assay.analysis.comparison import Comparison

TEXTS: Final = (
    "\x1b]0;owned\x07",
    "<script>alert(1)</script>",
    r"\input{/etc/passwd}",
    "a|b",
    "=cmd()",
    "x & y % z # $ _ { } ~ ^",
    "[red]x[/red]",
    "line\nbreak",
    "中 é ß",
    "*",
    "[x]",
)


def hostile(folder: Path) -> Comparison:
    """One configuration for each text, which is a value, a metric and a name there."""
    for number, text in enumerate(TEXTS):
        metrics = {"val/loss": float(number), f"test/{text}": 0.5}
        make_run(folder / str(number), f"tag.text={text}", metrics=metrics, name=text, reason=text)
    broken = folder / "bad\x1b[31m"
    make_run(broken)
    (broken / "record.json").write_text('{"schema_version": "\x1b[31m"}')
    return compare(read_runs([folder]))
