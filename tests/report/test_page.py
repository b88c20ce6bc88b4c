from __future__ import annotations

import json
import re
import shutil
import subprocess
from html.parser import HTMLParser
from typing import TYPE_CHECKING

import numpy as np
import pytest
from tests.figure.test_figure import EXAMPLES, HOSTILE
from typing_extensions import override

from assay.figure.figure import Figure, Line
from assay.report.page import (
    Cards,
    Cell,
    Code,
    Figures,
    Note,
    Page,
    Picture,
    Pictures,
    Section,
    Table,
    render,
    thin_figure,
    write,
)

if TYPE_CHECKING:
    from pathlib import Path


BLOCKS = (
    Cards([(HOSTILE, HOSTILE, HOSTILE)], HOSTILE),
    Table(
        [HOSTILE, "b"], [[HOSTILE, Cell(HOSTILE, 1.0, "bad", "a/b.html", HOSTILE)]], HOSTILE, filtered=True
    ),
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
    section = Section("one", turned, [Table(["a"], [[Cell(turned, title=turned)]]), Code(turned)])
    drawn = Figure("curve", turned, (Line(turned, np.arange(2), np.arange(2)),))
    text = render(Page("run", turned, [section, Section("two", "Two", [Figures([drawn])])]))
    found = re.search(r'<script type="application/json">(.*?)</script>', text, re.DOTALL)
    assert found is not None
    assert not set("\u202e\x1b\x00") & set(text.partition("<script")[0] + str(json.loads(found[1])))


def test_the_browser_is_told_to_load_nothing_and_to_run_only_these_scripts() -> None:
    found = re.search(r'http-equiv="Content-Security-Policy" content="(.*?)"', render(PAGE))
    assert found is not None
    assert "default-src &#39;none&#39;" in found[1]
    assert "unsafe-eval" not in found[1]
    assert not re.search("script-src [^;]*unsafe-inline", found[1])


CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), "")
OPTIONS = (
    *("--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"),
    *("--host-resolver-rules=MAP * ~NOTFOUND", "--enable-logging=stderr", "--v=0", "--dump-dom"),
    "--virtual-time-budget=20000",
)


def opened(path: Path) -> tuple[str, list[str]]:
    """A page after its scripts have run without a network, and what it has printed on the console."""
    profile = f"--user-data-dir={path.parent / 'browser'}"
    ended = subprocess.run(
        [CHROMIUM, *OPTIONS, profile, path.as_uri()], capture_output=True, text=True, timeout=200, check=True
    )
    said = re.findall(r'CONSOLE[:(]\d+\)?\] "(.*)", source', ended.stderr)
    return ended.stdout, [line for line in said if "GL" not in line]  # said where there is no graphics card


@pytest.mark.skipif(not CHROMIUM, reason="there is no Chromium on this machine")
def test_a_browser_draws_it_all_without_a_network_and_without_a_word(tmp_path: Path) -> None:
    write(PAGE, tmp_path / "page.html")
    dom, console = opened(tmp_path / "page.html")
    assert console == []
    assert dom.count("main-svg") >= len(EXAMPLES)
    assert "javascript:alert" not in "".join(re.findall(r"<a[^>]*>", dom))
    (tmp_path / "loud.html").write_text("<script>console.error('heard')</script>")
    assert opened(tmp_path / "loud.html")[1] == ["heard"]


def test_no_peak_and_no_end_of_a_line_is_lost() -> None:
    y = np.random.default_rng(0).normal(size=10_000)
    y[[1234, 8765]] = 50, -50
    figure = thin_figure(
        Figure("a", "", (Line("a", np.arange(10_000), y, low=y - 1, high=y + 1),), caption="What.")
    )
    (line,) = figure.marks
    assert isinstance(line, Line)
    x = np.asarray(line.x)
    assert len(x) <= 802
    assert {0, 1234, 8765, 9999} <= set(x.tolist())
    assert (np.diff(x) > 0).all()
    assert (np.asarray(line.y) == y[x]).all()
    assert line.low is not None
    assert (np.asarray(line.low) == y[x] - 1).all()
    assert figure.caption.startswith("What. Long curves")
