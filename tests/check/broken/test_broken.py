"""Every config here is broken, and is refused in one message that names the key, before a run begins.

A case: `typed` (the overrides), `key` (the message begins with it), `says` (what else it must hold), `files`
(written into the project first), `without` (packages that are as good as not installed), `always` (tried in
every run, as the first one of each file is; the others are long).
"""

from __future__ import annotations

import re
import shlex
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import lightning as L
import pytest
import yaml
from typer.testing import CliRunner

from assay.cli.app import app

if TYPE_CHECKING:
    from _pytest.mark import ParameterSet

VERB = "check"
LINES, LINES_OF_A_SWEEP, WIDTH = 4, 12, 400
HERE = Path(__file__).parent


@dataclass(frozen=True)
class Broken:
    """One case; see above."""

    typed: str
    says: list[str]
    key: str = ""
    files: dict[str, str] = field(default_factory=dict)
    without: list[str] = field(default_factory=list)
    always: bool = False
    kind: str = ""

    def __str__(self) -> str:
        return f"{self.kind}: {self.typed}"


def cases() -> list[Broken]:
    found = []
    for path in sorted(HERE.glob("*.yaml")):
        found += [Broken(**case, kind=path.stem) for case in yaml.safe_load(path.read_text(encoding="utf-8"))]
    return found


@pytest.fixture(autouse=True)
def in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr("torch.cuda.device_count", lambda: 0)
    monkeypatch.setattr("torch.backends.mps.is_available", lambda: False)

    def began(*args: object, **kwargs: object) -> NoReturn:
        pytest.fail("a training began")

    monkeypatch.setattr(L.Trainer, "fit", began)


def test_there_are_many() -> None:
    assert len(cases()) >= 400
    names = [str(case) + str(case.files) for case in cases()]
    assert len(set(names)) == len(names), "no case twice"


def some_always() -> list[ParameterSet]:
    found = cases()
    first = {case.kind: case for case in reversed(found)}.values()
    return [
        pytest.param(case, id=str(case), marks=[] if case.always or case in first else [pytest.mark.long])
        for case in found
    ]


@pytest.mark.parametrize("case", some_always())
def test_refused(case: Broken, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, text in case.files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    for package in case.without:
        monkeypatch.setitem(sys.modules, package, None)
    quick = ["device=cpu"] if "device=" not in case.typed else []
    words = [VERB, *quick, *shlex.split(case.typed)]
    result = CliRunner().invoke(app, words, env={"COLUMNS": "80"})
    said = result.stderr
    assert result.exit_code in (1, 2), result.output
    assert "Traceback" not in result.output
    assert said.startswith("error: "), result.output
    assert 1 <= len(said.splitlines()) <= (LINES_OF_A_SWEEP if "-m" in words else LINES), said
    assert max(map(len, said.splitlines())) <= WIDTH, said
    begins = re.findall(r"^(?:error:|    |  ) *(\S.*)$", said, flags=re.MULTILINE)
    assert any(line.startswith(case.key) for line in begins), said
    for part in case.says:
        assert part in said
    assert not list(tmp_path.rglob("record.json"))
    assert not (tmp_path / "outputs").exists()
