"""Every command on the page for coding agents works as it stands, in the page's order."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest
import typer
from sklearn.datasets import load_wine  # type: ignore[import-untyped]  # scikit-learn ships no types
from tests.contract.json_page import problems_of
from typer.testing import CliRunner

from assay.cli.app import app

PAGE = Path(__file__).parents[2] / "docs" / "agents.md"
LINE = re.compile(r"^    (?P<typed>assay .*?)(?:  # exit code (?P<code>\d+))?$", re.MULTILINE)


@dataclass(frozen=True)
class Line:
    typed: str
    code: int

    def __str__(self) -> str:
        return self.typed


def lines() -> list[Line]:
    text = PAGE.read_text(encoding="utf-8")
    return [Line(found["typed"], int(found["code"] or 0)) for found in LINE.finditer(text)]


LINES = lines()


def fill(path: Path) -> Path:
    """The folder that the page is about: the wine data of scikit-learn as a table."""
    wine = load_wine(as_frame=True)
    table = wine.frame.drop(columns="target").assign(kind=[wine.target_names[one] for one in wine.target])
    table.to_csv(path / "wine.csv", index=False)
    table.drop(columns="kind").head(5).to_csv(path / "new.csv", index=False)
    shutil.copytree(Path(__file__).parents[1] / "experiment/lightning_project", path / "lightning_project")
    return path


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return fill(tmp_path_factory.mktemp("agents"))


SLOW = re.compile(r"assay (tune|profile|export|try) |.*tries/base")
"""What takes seconds; tests/run, tests/cli and tests/sweep try these verbs in every run."""


@pytest.mark.parametrize("line", [line for line in LINES if not SLOW.match(line.typed)], ids=str)
def test_works_as_it_stands(line: Line, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    check(line)


@pytest.mark.long
def test_the_whole_page_works_as_it_stands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(fill(tmp_path))
    for line in LINES:
        check(line)


def check(line: Line) -> None:
    verb, *words = shlex.split(line.typed)[1:]
    result = CliRunner().invoke(app, [verb, *words])
    assert result.exit_code == line.code, result.stderr
    if "--json" in words:
        document = json.loads(result.stdout)
        assert not problems_of(document)
        assert ("error" in document) == bool(line.code)


def test_the_page_shows_every_verb() -> None:
    shown = {line.typed.split()[1] for line in LINES}
    assert shown == set(typer.main.get_group(app).commands) - {"reproduce"}
