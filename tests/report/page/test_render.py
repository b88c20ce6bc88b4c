from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from typing import TYPE_CHECKING

import numpy as np
import pytest
from tests.figure.examples import EXAMPLES, HOSTILE
from tests.report.page.browser import needs_chromium, opened
from typing_extensions import override

from assay.figure.figure import Figure, Line
from assay.report.page import (
    Cards,
    Cell,
    Code,
    Facts,
    Figures,
    Note,
    Page,
    Picture,
    Pictures,
    Section,
    Table,
    render,
    write,
)

if TYPE_CHECKING:
    from pathlib import Path

BLOCKS = (
    Cards([(HOSTILE, HOSTILE, HOSTILE)], HOSTILE),
    Table(
        [HOSTILE, "b"], [[HOSTILE, Cell(HOSTILE, 1.0, "bad", "a/b.html", HOSTILE)]], HOSTILE, filtered=True
    ),
    Facts([(HOSTILE, HOSTILE), ("b", Cell(HOSTILE, title=HOSTILE))]),
    Pictures(HOSTILE, [Picture(b"\x89PNG", HOSTILE, '" onerror="alert(1)', "bad")], HOSTILE),
    Code(HOSTILE, HOSTILE),
    Code(HOSTILE, HOSTILE, folded=True),
    Note(HOSTILE, "warn"),
)
PAGE = Page(
    "run",
    HOSTILE,
    (
        Section("drawn", HOSTILE, [Figures(EXAMPLES)], HOSTILE),
        Section("rest", "Rest", BLOCKS),
        Section("no", "None", ()),
    ),
    (HOSTILE, "bad"),
    (HOSTILE,),
)


class Elements(HTMLParser):
    """Names of elements, and of their attributes; what stands in scripts."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: set[str] = set()
        self.addresses: set[str] = set()
        self.feed(text)

    @override
    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes |= {name for name, _ in attrs}
        self.addresses |= {str(value) for name, value in attrs if name in ("href", "src", "action")}


def test_no_text_becomes_an_element_an_attribute_or_a_script() -> None:
    hostile = Elements(render(PAGE))
    harmless = Elements(render(PAGE).replace(HOSTILE, "x"))
    assert hostile.tags.count("script") == 3
    assert hostile.tags == harmless.tags
    assert not {name for name in hostile.attributes if name.startswith("on")}
    assert all(re.match(r"#|a/b\.html$|data:image/png;base64,", address) for address in hostile.addresses)


def test_no_text_reverses_the_letters_around_it() -> None:
    turned = "cat\u202egnp.exe\x1b\x00"
    section = Section("one", turned, [Facts([(turned, Cell(turned, title=turned))]), Code(turned)])
    drawn = Figure("curve", turned, (Line(turned, np.arange(2), np.arange(2)),))
    text = render(Page("run", turned, [section, Section("two", "Two", [Figures([drawn])])]))
    found = re.search(r'<script type="application/json">(.*?)</script>', text, re.DOTALL)
    assert found is not None
    assert not set("\u202e\x1b\x00") & set(text.partition("<script")[0] + str(json.loads(found[1])))


def test_what_it_draws_is_json_that_ends_no_script() -> None:
    found = re.search(r'<script type="application/json">(.*?)</script>', render(PAGE), re.DOTALL)
    assert found is not None
    assert not re.search("[<>&]", found[1])
    assert set(json.loads(found[1])) == {figure.name for figure in EXAMPLES}


def test_the_browser_is_told_to_load_nothing_and_to_run_only_these_scripts() -> None:
    found = re.search(r'http-equiv="Content-Security-Policy" content="(.*?)"', render(PAGE))
    assert found is not None
    assert "default-src &#39;none&#39;" in found[1]
    assert "unsafe-eval" not in found[1]
    assert not re.search("script-src [^;]*unsafe-inline", found[1])


def test_a_page_without_figures_needs_no_library() -> None:
    text = render(Page("run", "a", [Section("s", "S", [Note("nothing to draw")])]))
    assert len(text) < 60_000


def test_long_curves_keep_the_page_small() -> None:
    values = np.random.default_rng(0).normal(size=300_000)
    figure = Figure("long", "Long", (Line("a", np.arange(len(values)), values),))
    small, large = (
        len(render(Page("run", "a", [Section("s", "S", [Figures([one])])]))) for one in (EXAMPLES[0], figure)
    )
    assert large - small < 40_000


def test_two_figures_of_one_name_are_refused() -> None:
    with pytest.raises(ValueError, match="two figures of one name"):
        render(Page("run", "a", [Section("s", "S", [Figures([EXAMPLES[0], EXAMPLES[0]])])]))


@needs_chromium
def test_a_browser_draws_it_all_without_a_network_and_without_a_word(tmp_path: Path) -> None:
    write(PAGE, tmp_path / "page.html")
    seen = opened(tmp_path / "page.html", tmp_path / "browser")
    assert seen.console == []
    assert seen.dom.count("main-svg") >= len(EXAMPLES)
    assert "javascript:alert" not in "".join(re.findall(r"<a[^>]*>", seen.dom))
    (tmp_path / "loud.html").write_text("<script>console.error('heard')</script>")
    assert opened(tmp_path / "loud.html", tmp_path / "browser").console == ["heard"]
