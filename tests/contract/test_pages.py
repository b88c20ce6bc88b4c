"""What the site's pages for people show works as it stands: each block of a page, in the page's order."""

from __future__ import annotations

import contextlib
import json
import re
import shlex
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import typer
from PIL import Image
from sklearn.datasets import (  # type: ignore[import-untyped]  # it ships no types
    load_breast_cancer,
    load_diabetes,
    load_wine,
)
from tests.conftest import unchanged_process
from tests.contract.json_page import problems_of
from typer.testing import CliRunner

from assay.cli.app import app
from assay.compose.compose import compose

DOCS = Path(__file__).parents[2] / "docs"
BLOCK = re.compile(
    r'^```(?P<kind>\w+)(?: title="(?P<file>.*?)")?\n(?P<text>.*?)^```$', re.MULTILINE | re.DOTALL
)
LINE = re.compile(r"assay (?P<typed>.*?)(?:  # exit code (?P<code>\d+))?")
QUICK = {"trainer.max_epochs": "1", "device": "cpu", "baseline": "none", "hydra/launcher": "serial"}
"""What a training takes unless the page or `pytest -m long` says otherwise."""
ALWAYS = {"start", "from_pytorch", "api", "agents, but for what takes seconds"}
SLOW = re.compile(r"assay (tune|profile|export|try) |.*tries/base")
"""Lines of the page for agents whose verbs tests/run, tests/cli and tests/sweep try in every run."""
RUN = {
    *ALWAYS,
    "agents",
    "from_keras",
    "from_module",
    "gan",
    "tutorial_table",
    "tutorial_pictures",
    "tutorial_paper",
    "recipes",
    "troubleshooting",
}


@dataclass(frozen=True)
class Block:
    kind: str
    file: str
    text: str


def blocks(page: str) -> list[Block]:
    page, is_quick, _ = page.partition(",")
    text = (DOCS / f"{page}.md").read_text(encoding="utf-8")
    if page == "agents":
        lines = re.findall(r"^    (assay .*)$", text, re.MULTILINE)
        return [Block("sh", "", line) for line in lines if not is_quick or not SLOW.match(line)]
    return [Block(found["kind"], found["file"] or "", found["text"]) for found in BLOCK.finditer(text)]


def test_the_page_for_agents_shows_every_verb() -> None:
    shown = {block.text.split()[1] for block in blocks("agents")}
    assert shown == set(typer.main.get_group(app).commands) - {"reproduce"}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def patients(folder: Path, page: str) -> None:
    """The table that a page takes for granted where it does not write one."""
    if page == "recipes":
        cancer = load_breast_cancer(as_frame=True).frame.rename(columns={"target": "ill"})
        cancer.assign(ill=cancer.ill.map({0: "yes", 1: "no"})).to_csv(folder / "patients.csv", index=False)
    elif page == "troubleshooting":
        frame = load_diabetes(as_frame=True).frame.rename(columns={"target": "progression"})
        frame.to_csv(folder / "patients.csv", index=False)
    elif page.startswith("agents"):
        wine = load_wine(as_frame=True)
        table = wine.frame.drop(columns="target").assign(kind=[wine.target_names[one] for one in wine.target])
        table.to_csv(folder / "wine.csv", index=False)
        project = Path(__file__).parents[1] / "experiment/lightning_project"
        shutil.copytree(project, folder / "lightning_project")


def invoke(typed: str, code: int) -> str:
    """Type a command of a page, a training of which is made short."""
    typed, _, redirected = typed.partition(" > ")
    verb, *words = shlex.split(typed)
    if verb == "train":
        quick = {
            key: value for key, value in QUICK.items() if not any(w.startswith(f"{key}=") for w in words)
        }
        words += [f"{key}={value}" for key, value in quick.items() if "-m" in words or "/" not in key]
    with unchanged_process():
        result = CliRunner().invoke(app, [verb, *words], env={"COLUMNS": "300"})
    assert result.exit_code == code, f"{typed}\n{result.output}"
    assert result.output.strip(), f"{typed}: it says nothing"
    if "--json" in words:
        document = json.loads(result.stdout)
        assert not problems_of(document)
        assert ("error" in document) == bool(code)
    if redirected:
        Path(redirected).write_text(result.stdout, encoding="utf-8")
    return result.stderr


@pytest.mark.parametrize(
    "page", [pytest.param(page, marks=[] if page in ALWAYS else [pytest.mark.long]) for page in sorted(RUN)]
)
@pytest.mark.timeout(1800)
def test_works_as_it_stands(page: str, folder: Path) -> None:
    patients(folder, page)
    names: dict[str, Any] = {}
    said, tried = "", 0
    for block in blocks(page):
        if block.file == "train.py":
            compile(block.text, block.file, "exec")  # what is written by hand elsewhere
        elif block.file:
            path = folder / block.file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(block.text, encoding="utf-8")
        elif block.kind == "python":
            with contextlib.redirect_stdout(None):
                exec(compile(block.text, page, "exec"), names)  # noqa: S102 - the page's own lines
            tried += 1
        elif block.kind == "sh":
            subprocess.run(["/bin/bash", "-n", "-c", block.text], check=True)
            for line in block.text.splitlines():
                found = LINE.fullmatch(line)
                assert found, f"{line}: not a command of assay"
                said, tried = invoke(found["typed"], int(found["code"] or 0)), tried + 1
        elif block.kind == "text" and page in ("start", "troubleshooting"):
            assert block.text.strip() in " ".join(said.split())
    assert tried


NUMBER = re.compile(r"\d+(?:[.,]\d+)*")


@pytest.mark.long
def test_the_tutorial_shows_the_scores_of_its_run(folder: Path) -> None:
    """As far as another processor rounds them: within two hundredths."""
    page = blocks("tutorial_table")
    exec(page[0].text, {})  # noqa: S102 - the page's own lines
    (text,) = (block.text for block in page if block.kind == "text")
    (typed,) = re.findall(r"^assay (train .*runs/first)$", "".join(block.text for block in page), re.M)
    with unchanged_process():
        shown = CliRunner().invoke(app, [*shlex.split(typed), "device=cpu"], env={"COLUMNS": "300"}).output
    for line in text.splitlines():
        start = " ".join(line.split()[:2])
        (found,) = (" ".join(one.split()) for one in shown.splitlines() if " ".join(one.split()[:2]) == start)
        assert NUMBER.sub("#", found) == NUMBER.sub("#", " ".join(line.split()))
        pairs = zip(NUMBER.findall(line), NUMBER.findall(found), strict=True)
        assert all(abs(float(a) - float(b)) <= 2 for a, b in pairs if "%" in line)


@pytest.mark.parametrize("page", ["from_pytorch", "from_keras"])
def test_each_override_composes(page: str, folder: Path) -> None:
    rows = [line.split(" | ")[1] for line in (DOCS / f"{page}.md").read_text().splitlines() if " | " in line]
    shown = [words for row in rows for words in re.findall(r"`(?:assay train (?:-m )?)?([^`]*=[^`]*)`", row)]
    assert len(shown) > 12
    for name in ("a", "b"):
        (folder / "photos" / name).mkdir(parents=True)
        Image.new("L", (8, 8)).save(folder / "photos" / name / "1.png")
    for words in shown:
        compose([word if "[" in word else word.partition(",")[0] for word in shlex.split(words)])
