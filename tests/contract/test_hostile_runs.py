"""What stands in somebody else's run directory is text: on a terminal, in HTML, LaTeX, Markdown and JSON."""

from __future__ import annotations

import csv
import json
import random
import shutil
from contextlib import chdir
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import typer
import yaml
from tests.contract.json_page import problems_of
from typer.testing import CliRunner

from assay.cli.app import app
from assay.record.run_record import RunRecord
from assay.terminal import printable

if TYPE_CHECKING:
    from typer.testing import Result

SCRIPT, LATEX, MARKUP = "<script>alert(1)</script>", r"\input{/etc/passwd}", "[bold]b[/bold]|`x`*y*"
FORGED = "\nforged best"
CONTROL = "\x1b]0;owned\x07\x1b[2J\x9b31m\x7f\u202egnp"
EVERYTHING = f"{SCRIPT}{FORGED}{LATEX}{MARKUP}{CONTROL}\x00"
TYPED = f"{SCRIPT}{LATEX}{MARKUP}{CONTROL}"
CLASSES = ["<script>alert(2)</script>", "a|b\x1b[31m\x07", r"\input{/etc/passwd} & % $ # _ { } ~ ^"]
COLUMNS = ["<img src=x onerror=alert(3)>", "c\x1b]0;t\x07|\u202egnp", "\\end{tabular}\nforged best"]


@dataclass(frozen=True)
class Typed:
    """A command on two hostile runs.

    Attributes:
        words: What is typed.
        codes: Exit codes that it may have.
    """

    words: tuple[str, ...]
    codes: tuple[int, ...] = (0,)

    def __str__(self) -> str:
        return " ".join(self.words)


COMMANDS = [
    Typed(("diff", "runs/a", "runs/b c")),
    Typed(("resume", "runs/a"), (1, 2)),
    Typed(("resume", "runs/real", "trainer.max_epochs=2")),
    Typed(("reproduce", "runs/a"), (1,)),
    Typed(("explain", TYPED), (2,)),
    Typed(("configs", TYPED), (2,)),
    Typed(("train", f"optimizer.lr={TYPED}"), (2,)),
    Typed(("check", f"name={TYPED}"), (2,)),
    Typed(("diff", TYPED, ""), (1,)),
    Typed(("resume", TYPED), (1,)),
]
OWN = {"train", "check", "configs", "explain", "info"}
"""Verbs that read no run directory."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`runs/real` was trained on a table with such names; `runs/a` and `runs/b c` hold them everywhere."""
    path = tmp_path_factory.mktemp("hostile runs")
    draws = random.Random(0)
    with (path / "t.csv").open("w", newline="", encoding="utf-8") as file:
        rows = [[*(draws.gauss(row % 3, 1) for _ in COLUMNS), CLASSES[row % 3]] for row in range(90)]
        csv.writer(file).writerows([[*COLUMNS, "kind"], *rows])
    with chdir(path):
        words = [
            "data=table",
            "data.source.path=t.csv",
            "data.source.target=kind",
            "model=linear",
            "device=cpu",
        ]
        result = CliRunner().invoke(
            app, ["train", *words, "trainer.max_epochs=1", "hydra.run.dir=runs/real", f"tags=['{MARKUP}']"]
        )
        assert result.exit_code == 0, result.stderr
        assert not unprintable(result)
        for number, name in enumerate(("a", "b c")):
            shutil.copytree("runs/real", f"runs/{name}")
            say_such_things(Path("runs") / name, number)
    return path


def say_such_things(run: Path, number: int) -> None:
    """Write it wherever a run directory has text, under seals that are right."""
    record = RunRecord.load(run)
    record.name = record.reason = EVERYTHING
    record.tags = [EVERYTHING, *CLASSES]
    record.seed = number
    record.overrides += [f"name={EVERYTHING}", f"+{EVERYTHING}=1"]
    record.choices[EVERYTHING] = EVERYTHING
    record.choices["model"] = EVERYTHING
    record.machine["host"] = record.machine["cpu"] = EVERYTHING
    record.packages[EVERYTHING] = f"{EVERYTHING}{number}"
    record.metrics[f"test/{EVERYTHING}"] = 0.5 + number
    record.best["monitor"] = f"test/{EVERYTHING}"
    record.loggers[EVERYTHING] = EVERYTHING
    record.git = {
        "commit": EVERYTHING,
        "branch": EVERYTHING,
        "remote": EVERYTHING,
        "folder": ".",
        "patch_complete": True,
    }
    record.save(run)
    config = yaml.safe_load((run / "config.yaml").read_text(encoding="utf-8"))
    config["name"], config["tags"] = EVERYTHING, [EVERYTHING]
    config["model"]["added"] = config["optimizer"]["text"] = f"{EVERYTHING}{number}"
    config[EVERYTHING.replace(".", "")] = number
    (run / "config.yaml").write_text(yaml.safe_dump(config), encoding="utf-8")
    with (run / "log.txt").open("a", encoding="utf-8") as log:
        log.write(f"{EVERYTHING}\n")
    rows = (run / "metrics.csv").read_text(encoding="utf-8").splitlines()
    rows = [f'{row},"{"test/" + SCRIPT + LATEX if not at else 0.5}"' for at, row in enumerate(rows)]
    (run / "metrics.csv").write_text("\n".join(rows) + "\n", encoding="utf-8")


def unprintable(result: Result) -> list[str]:
    """Lines that a terminal would obey, or that only look like the command's own."""
    lines = (result.stdout + result.stderr).split("\n")
    return [line for line in lines if line != printable(line) or line.startswith("forged")]


def typed(folder: Path, *words: str, width: str = "100") -> Result:
    with chdir(folder):
        return CliRunner().invoke(app, list(words), env={"COLUMNS": width})


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: printable(str(command))[:60])
def test_reaches_no_terminal(command: Typed, folder: Path) -> None:
    result = typed(folder, *command.words)
    assert result.exit_code in command.codes, result.output
    assert isinstance(result.exception, SystemExit | None), repr(result.exception)
    assert "Traceback" not in result.output
    assert not unprintable(result)
    assert len(result.stderr.splitlines()) <= 12, "one message"


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: printable(str(command))[:60])
def test_is_text_in_json(command: Typed, folder: Path) -> None:
    result = typed(folder, *command.words, "--json")
    assert result.exit_code in command.codes, result.output
    assert not unprintable(result)
    document = json.loads(result.stdout)
    assert not problems_of(document)
    assert document.get("error", {}).get("code", 0) == result.exit_code


def test_every_verb_that_reads_runs_is_here() -> None:
    assert {command.words[0] for command in COMMANDS} >= set(typer.main.get_group(app).commands) - OWN
