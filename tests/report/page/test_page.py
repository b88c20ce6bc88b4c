"""What a page holds, before it is drawn."""

from __future__ import annotations

import base64
from pathlib import Path

from tests.figure.examples import EXAMPLES

from assay.report import page
from assay.report.page import Cell, Facts, Figures, Note, Page, Picture, Section, Table


def test_plain_texts_are_cells() -> None:
    best = Cell("91 %", 0.91, "best")
    assert list(Table(["name", "score"], [["a", best]]).cells) == [[Cell("a"), best]]
    assert list(Facts([("name", "a"), ("score", best)]).cells) == [("name", Cell("a")), ("score", best)]


def test_a_picture_holds_its_bytes() -> None:
    source = Picture(b"\x89PNG", "cat", "1.png").source
    head, _, data = source.partition(",")
    assert head == "data:image/png;base64"
    assert base64.b64decode(data) == b"\x89PNG"


def test_every_figure_of_every_section() -> None:
    sections = [
        Section("a", "A", [Note("x"), Figures(EXAMPLES[:2])]),
        Section("b", "B", [Figures(EXAMPLES[2:3])]),
    ]
    assert Page("run", "r", sections).figures == list(EXAMPLES[:3])


def test_each_block_has_a_template() -> None:
    folder = Path(page.__file__).parent / "templates" / "blocks"
    blocks = {
        kind.template for kind in vars(page).values() if isinstance(kind, type) and hasattr(kind, "template")
    }
    assert blocks == {path.name for path in folder.glob("*.html")}
