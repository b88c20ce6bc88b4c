"""What stands in somebody else's run directory is text: on a terminal, in HTML, LaTeX, Markdown and JSON."""

from __future__ import annotations

import csv
import io
import json
import random
import re
import shutil
from contextlib import chdir
from dataclasses import dataclass
from html.parser import HTMLParser
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import typer
import yaml
from tests.contract.json_page import problems_of
from typer.testing import CliRunner
from typing_extensions import override

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
FORMATS = ("table", "csv", "json", "markdown", "latex")
CLASSES = ["<script>alert(2)</script>", "a|b\x1b[31m\x07", r"\input{/etc/passwd} & % $ # _ { } ~ ^"]
COLUMNS = ["<img src=x onerror=alert(3)>", "c\x1b]0;t\x07|\u202egnp", "\\end{tabular}\nforged best"]


@dataclass(frozen=True)
class Typed:
    """A command on two hostile runs, and exit codes that it may have."""

    words: tuple[str, ...]
    codes: tuple[int, ...] = (0,)

    def __str__(self) -> str:
        return " ".join(self.words)


VERBS = typer.main.get_group(app).commands
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
    *(Typed((verb, "runs", *words)) for verb in ("ls", "compare") for words in ((), ("--sort", "test/loss"))),
    *(Typed((verb, "runs", "--format", form)) for verb in ("ls", "compare") for form in FORMATS),
    Typed(("compare", "runs", "--metric", TYPED), (0, 1, 2)),
    Typed(("compare", "runs", "--where", f"{TYPED}=1"), (0, 1, 2)),
    Typed(("compare", "runs", "--group-by", "optimizer.text")),
    Typed(("best", "runs"), (1,)),
    Typed(("best", "runs", "val/loss")),
    Typed(("best", "runs", TYPED), (1, 2)),
    Typed(("rm", "--yes", "spare"), (0,)),
    Typed(("rm", "--yes", TYPED), (1, 2)),
    Typed(("report", "runs/a", "--out", "a.html")),
    Typed(("report", "runs/real", "--out", "real.html", "--csv", "numbers", "--png", "pictures")),
    *(Typed(("report", place, "--out", f"{place}.html")) for place in ("runs", "sweep")),
    Typed(("eval", "runs/real")),
    Typed(("eval", "runs/a"), (0, 1, 2)),
    Typed(("predict", "runs/real", "t.csv")),
    Typed(("predict", "runs/real", "t.csv", "--out", "said.csv")),
    Typed(("predict", "runs/a", "t.csv"), (0, 1, 2)),
    Typed(("try", "optimizer.lr=0.5", "--against", "runs/a"), (1, 2)),
    Typed(("export", "runs/real")),
    Typed(("export", "runs/a"), (0, 1, 2)),
]
OWN = {
    *("train", "cache", "check", "configs", "convert", "data", "explain", "info", "profile", "tune"),
    *("new", "add", "schema"),
}
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
        words = ["data=table", "data.source.path=t.csv", "data.source.target=kind", "model=linear"]
        words += ["device=cpu", "trainer.max_epochs=1"]
        for more in (
            ["hydra.run.dir=runs/real", f"tags=['{MARKUP}']"],
            ["-m", "seed=1,2", "hydra/launcher=serial", "hydra.sweep.dir=sweep"],
        ):
            result = CliRunner().invoke(app, ["train", *words, *more])
            assert result.exit_code == 0, result.stderr
            assert not unprintable(result)
        for number, name in enumerate(("a", "b c")):
            shutil.copytree("runs/real", f"runs/{name}")
            say_such_things(Path("runs") / name, number)
        for number in range(2):
            say_such_things(Path("sweep") / str(number), number)
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
    record.notes.append(f"data: {EVERYTHING}")
    record.git = {
        **dict.fromkeys(("commit", "branch", "remote"), EVERYTHING),
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


def unprintable(result: Result, *, also_csv: bool = False) -> list[str]:
    """Lines that a terminal would obey, or that only look like the command's own; CSV has lines in quotes."""
    text = re.sub(r'"[^"]*"', '""', result.stdout) if also_csv else result.stdout
    lines = (text + result.stderr).split("\n")
    return [line for line in lines if line != printable(line) or line.startswith("forged")]


def typed(folder: Path, *words: str, width: str = "60") -> Result:
    with chdir(folder):
        if words[0] == "rm" and not Path("spare").exists():
            shutil.copytree("runs/real", "spare")
        return CliRunner().invoke(app, list(words), env={"COLUMNS": width})


TOLD_ALIKE = {"eval", "export", "report"}
"""Verbs that take seconds and print the same under --json, on standard error."""


@pytest.mark.parametrize(
    "command",
    [one for one in COMMANDS if one.words[0] not in TOLD_ALIKE],
    ids=lambda command: printable(str(command))[:60],
)
def test_reaches_no_terminal(command: Typed, folder: Path) -> None:
    result = typed(folder, *command.words)
    assert result.exit_code in command.codes, result.output
    assert isinstance(result.exception, SystemExit | None), repr(result.exception)
    assert "Traceback" not in result.output
    assert not unprintable(result, also_csv="csv" in command.words)
    assert result.stdout == printable(result.stdout)
    assert len(result.stderr.splitlines()) <= 12, "one message"


@pytest.mark.always
@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: printable(str(command))[:60])
def test_is_text_in_json(command: Typed, folder: Path) -> None:
    result = typed(folder, *command.words, "--json")
    assert result.exit_code in command.codes, result.output
    assert not unprintable(result)
    assert isinstance(result.exception, SystemExit | None), repr(result.exception)
    assert "Traceback" not in result.output
    if result.exit_code:
        assert len(result.stderr.splitlines()) <= 12, "one message"
    document = json.loads(result.stdout)
    assert not problems_of(document)
    assert document.get("error", {}).get("code", 0) == result.exit_code


def test_every_verb_that_reads_runs_is_here() -> None:
    assert {command.words[0] for command in COMMANDS} >= set(VERBS) - OWN


class Tags(HTMLParser):
    """What a browser would make of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.attributes: list[tuple[str, str, str]] = []
        self.scripts: list[str] = []
        self._inside = ""

    @override
    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._inside = tag
        self.attributes += [(tag, name, value or "") for name, value in attrs]

    @override
    def handle_data(self, data: str) -> None:
        if self._inside == "script":
            self.scripts.append(data)

    @override
    def handle_endtag(self, tag: str) -> None:
        self._inside = ""


@pytest.mark.always("runs/a", "runs")
@pytest.mark.parametrize("place", ["runs/a", "runs/real", "runs", "sweep"])
def test_runs_in_no_browser(place: str, folder: Path) -> None:
    result = typed(folder, "report", place, "--out", "page.html")
    assert result.exit_code == 0, result.output
    text = (folder / "page.html").read_text(encoding="utf-8")
    tags = Tags()
    tags.feed(text)
    assert not [one for one in tags.attributes if one[1].startswith("on")]
    addresses = [value for _, name, value in tags.attributes if name in ("src", "href")]
    inside = re.compile(r"data:image/png;base64,|#|(?!//)[\w./%-]+$", re.ASCII)  # no scheme, no host
    assert not [one for one in addresses if not inside.match(one)]
    assert not [one for one in tags.scripts if one.startswith("alert(")]
    assert "<script>alert(" not in text
    assert "onerror=alert" not in re.sub(
        r"(&|\\u0026)lt;img src=x onerror=alert|\\u003cimg src=x onerror=alert", "", text
    )
    assert not re.findall(
        "[\\x00-\\x08\\x0b\\x0c\\x0e-\\x1f\\x7f-\\x9f\\u202a-\\u202e]", text.partition("<script>")[0]
    )


def cells(line: str) -> int:
    """Of a row of Markdown."""
    return len(re.findall(r"(?<!\\)(?:\\\\)*\|", line))


@pytest.mark.parametrize("verb", ["ls", "compare"])
def test_forges_no_table(verb: str, folder: Path) -> None:
    shown = {form: typed(folder, verb, "runs", "--format", form).stdout for form in FORMATS}
    rows = [line for line in shown["markdown"].splitlines() if line.startswith("|")]
    assert len(rows) >= 4
    assert len({cells(row) for row in rows}) == 1, rows
    assert "<script>" not in shown["markdown"]
    read = list(csv.reader(io.StringIO(shown["csv"])))
    assert len({len(row) for row in read}) == 1
    assert not re.search(r"\\(input|end\{tabular\}\s*forged)", shown["latex"])
    assert shown["latex"].count(r"\begin{") == shown["latex"].count(r"\end{")


def test_is_text_in_a_model_card(folder: Path) -> None:
    result = typed(folder, "export", "runs/real", "--format", "safetensors", "--out", "exported")
    assert result.exit_code == 0, result.output
    (card,) = (folder / "exported").rglob("MODEL_CARD.md")
    text = card.read_text(encoding="utf-8")
    outside = re.sub(r"^(```+).*?^\1$|`[^`\n]*`", "", text, flags=re.MULTILINE | re.DOTALL)
    assert "<script>" not in outside
    assert "<img" not in outside
    assert text == printable(text)
    assert not [line for line in text.splitlines() if line.startswith("forged")]
