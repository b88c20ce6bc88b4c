"""Pages as files."""

from __future__ import annotations

import base64
import gzip
import hashlib
import html
import json
import os
import re
import shutil
import subprocess
from html.parser import HTMLParser
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas
import pytest
from PIL import Image
from tests.figure.test_figure import EXAMPLES, HOSTILE
from tests.mounting import room_for
from typing_extensions import override

from assay.errors import AssayError
from assay.figure import Bars, Figure, Heatmap, Line
from assay_report import info
from assay_report.page import (
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
from assay_report.report import _csv, report

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import Trained


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


def test_a_page_of_figures_is_small_and_its_library_has_the_hash_that_the_policy_names() -> None:
    text = render(PAGE)
    assert len(text) < 2_500_000
    packed = re.search(r'<script type="text/plain" id="library">([A-Za-z0-9+/=]+)</script>', text)
    assert packed is not None
    digest = hashlib.sha256(gzip.decompress(base64.b64decode(packed[1]))).digest()
    assert f"sha256-{base64.b64encode(digest).decode()}" in html.unescape(text)


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


def test_the_page_lies_in_the_run_and_its_figures_where_asked_for(
    digits_run: Trained, tmp_path: Path
) -> None:
    page, figures, numbers = tmp_path / "a" / "page.html", tmp_path / "figures", tmp_path / "numbers"
    written = report([digits_run.run_dir], page, png=figures, csv=numbers)
    assert written.page.read_text(encoding="utf-8").startswith("<!doctype html>")
    assert [path.stem for path in written.pictures] == list(written.figures)
    with Image.open(tmp_path / "figures" / "roc.png") as picture:
        assert picture.width > 600
    assert [path.stem for path in written.tables] == list(written.figures)
    matrix = pandas.read_csv(numbers / "confusion_matrix.csv", index_col=0)
    assert matrix.to_numpy().tolist() == digits_run.record["matrices"]["test/confusion_matrix"]


def test_no_name_of_a_figure_becomes_a_formula() -> None:
    bars = Figure("a", "", (Bars("@series", ["=cmd()", "b"], [-1, 2]),))
    assert _csv(bars).decode().splitlines()[1] == "'@series,'=cmd(),-1"
    matrix = Figure("a", "", (Heatmap(np.eye(2, dtype=int), ["+p", "-1"], ["=q", "r"]),))
    assert _csv(matrix).decode().splitlines() == ["index,'+p,-1", "'=q,1,0", "r,0,1"]


@pytest.mark.always("--png DIR-10000")
@pytest.mark.parametrize(
    ("option", "room"), [("--out FILE", 1_000_000), ("--png DIR", 10_000), ("--csv DIR", 60)]
)
def test_a_full_disk_leaves_nothing_half_written(
    option: str, room: int, digits_run: Trained, tmp_path: Path
) -> None:
    (tmp_path / "page.html").write_text('<!doctype html>\n<html lang="en"> of before')
    folders: dict[str, Any] = {key: tmp_path for key in ("png", "csv") if option == f"--{key} DIR"}
    with room_for(room), pytest.raises(AssayError, match="cannot be written") as error:
        report([digits_run.run_dir], tmp_path / "page.html", **folders)
    assert error.value.hint == f"{option} writes it somewhere else"
    assert {path.name: path.stat().st_size for path in tmp_path.iterdir() if path.stat().st_size > room} == {}
    assert "of before" in (tmp_path / "page.html").read_text(encoding="utf-8")
    assert not list(tmp_path.glob(".*")), "nothing is left of what was begun"


def test_only_a_report_is_replaced(digits_run: Trained, tmp_path: Path) -> None:
    for name, content in (("data.html", "a,b\n"), ("mine.html", "<p>Mine")):
        (tmp_path / name).write_text(content)
        with pytest.raises(AssayError, match="exists and is not a report; refusing to overwrite"):
            report([digits_run.run_dir], tmp_path / name)
        assert (tmp_path / name).read_text() == content
    os.mkfifo(tmp_path / "pipe.html")
    with pytest.raises(AssayError, match=r"pipe.html exists and is not a report"):  # it waits for nobody
        report([digits_run.run_dir], tmp_path / "pipe.html")
    assert (tmp_path / "pipe.html").is_fifo()
    for _ in range(2):
        report([digits_run.run_dir], tmp_path / "page.html")


@pytest.mark.parametrize(("count", "told"), [(1, "1 CUDA GPU"), (4, "3 more stay idle: device=ddp")])
def test_with_cuda(count: int, told: str, monkeypatch: pytest.MonkeyPatch) -> None:
    card = SimpleNamespace(name="H200", total_memory=141 * 2**30, major=9, minor=0)
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.device_count", lambda: count)
    monkeypatch.setattr("torch.cuda.get_device_name", lambda _: card.name)
    monkeypatch.setattr("torch.cuda.get_device_properties", lambda _: card)
    monkeypatch.setattr("torch.cuda.mem_get_info", lambda _: (3 * 2**30, card.total_memory))
    emulates = count == 1
    monkeypatch.setattr("torch.cuda.is_bf16_supported", lambda **_: not emulates)
    assert info.auto_choice()["chooses"] == "cuda:0 (H200)"
    assert told in info.auto_choice()["why"]
    gpus = info.machine()["gpu"]
    assert [name for name in gpus if name.startswith("cuda:")] == [f"cuda:{index}" for index in range(count)]
    assert gpus["cuda:0"] == "H200, 141 GiB, 3 GiB free, compute capability 9.0"
    assert gpus["bf16"] == ("emulated, slow" if emulates else "supported")


def test_auto_is_what_lightning_takes() -> None:
    import lightning as L

    trainer = L.Trainer(accelerator="auto", devices=1, logger=False, enable_checkpointing=False)
    assert info.auto_choice()["chooses"].partition(":")[0] == trainer.strategy.root_device.type
