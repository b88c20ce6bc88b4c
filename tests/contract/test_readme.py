"""What README, the help texts and the configs say to type can be typed."""

from __future__ import annotations

import re
import shlex
import subprocess
from contextlib import chdir
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import typer
from typer.testing import CliRunner

from assay.cli.app import app
from assay.compose.compose import compose
from assay.paths import CONF_DIR
from assay_sweep import session
from assay_sweep.session import plan_sweep

if TYPE_CHECKING:
    from assay_sweep.search.search import Search

ROOT = Path(__file__).parents[2]
COMMAND = re.compile(
    r"(?:^|\s|\$\(|`)assay ((?:train|configs|info|-sc|--|[a-z]+\b)(?:'[^']*'|[^`#)'])*?)(?=  |[`#)]|$)"
)
ELSEWHERE = {"agents", "from_lightning", "own_project", "try", "convert"}
"""Pages of docs whose commands their own tests run, in a folder that these need."""
PAGES = (
    *("README.md", "CONTRIBUTING.md", "examples/my_project/README.md"),
    *sorted(f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md") if path.stem not in ELSEWHERE),
)
OWN_PROJECT = ROOT / "examples" / "my_project"


@dataclass(frozen=True)
class Command:
    text: str
    source: str

    def __str__(self) -> str:
        return f"{self.source}: assay {self.text}"


def indented(text: str) -> list[str]:
    """Lines of a page's code blocks: with four spaces, and of bash; `test_pages` runs those of sh."""
    fenced = re.findall(r"^```bash\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    text = re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
    return [line[4:] for line in text.splitlines() if line.startswith("    ")] + "".join(fenced).splitlines()


def commands_in(lines: list[str], source: str) -> list[Command]:
    found = [match[1].strip(' "') for line in lines for match in COMMAND.finditer(line)]
    whole = [text for text in found if not re.search(r"GROUP|…|\$RUN", text) and text != "train --help"]
    return [Command(text, source) for text in whole]


def help_texts() -> list[Command]:
    verbs = typer.main.get_group(app).commands
    pages = {" ".join(words): words for words in [["--help"], *([verb, "--help"] for verb in verbs)]}
    found = []
    for name, words in pages.items():
        text = CliRunner().invoke(app, words, env={"COLUMNS": "200"}).stdout
        found += commands_in([line for line in text.splitlines() if not line.startswith("Usage")], name)
    return found


def every_command() -> list[Command]:
    found = help_texts()
    for page in PAGES:
        text = (ROOT / page).read_text(encoding="utf-8")
        found += commands_in(indented(text), page)
        found += commands_in(re.findall(r"`(assay [^`…]+? [^`…]+)`", text), page)
    for path in sorted(CONF_DIR.rglob("*.yaml")):
        comments = [line for line in path.read_text(encoding="utf-8").splitlines() if line.startswith("#")]
        found += commands_in([line.lstrip("# ") for line in comments], path.relative_to(CONF_DIR).as_posix())
    return list(dict.fromkeys(found))


COMMANDS = every_command()


@pytest.fixture
def _first_and_last_job(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the jobs that a sweep begins with; the others differ from them in values alone."""
    propose = session._first_proposals

    def propose_ends(search: Search) -> tuple[dict[int, str], list[tuple[str, ...]]]:
        tokens, proposals = propose(search)
        return tokens, [proposals[0], proposals[-1]]

    monkeypatch.setattr(session, "_first_proposals", propose_ends)


@pytest.mark.usefixtures("_first_and_last_job")
@pytest.mark.parametrize("command", {command.text: command for command in COMMANDS}.values(), ids=str)
def test_can_be_typed(command: Command, tmp_path: Path) -> None:
    verb, *words = shlex.split(command.text)
    if verb.startswith("-"):
        assert verb in ("-sc", "--help", "--version")
        return
    verbs = typer.main.get_group(app).commands
    assert verb in verbs
    context = verbs[verb].make_context(verb, list(words))
    if verb != "train":
        return
    overrides = context.params["overrides"] or []
    own = {
        "model=wide": "my_project",
        "data=diabetes_grades": "my_project",
        "experiment=digit_gan": "digit_gan",
    }
    (project,) = {own[word] for word in overrides if word in own} or {""}
    with chdir(ROOT / "examples" / project if project else tmp_path):
        if context.params["multirun"]:
            assert plan_sweep(overrides)
        else:
            compose(overrides)


def test_the_page_on_plugins_shows_the_own_task_as_it_is() -> None:
    page = (ROOT / "docs" / "plugins.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    assert block == (OWN_PROJECT / "my_project" / "ordinal.py").read_text(encoding="utf-8")


def file_map() -> set[str]:
    """What the tables of rooms name in their first column."""
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    section = text.partition("\n## Rooms\n")[2].partition("\n## ")[0]
    rows = [line.split(" | ")[0] for line in section.splitlines() if line.startswith("| `")]
    return {name.rstrip("/") for row in rows for name in re.findall(r"`([^`]+)`", row)}


def test_file_map_names_what_there_is() -> None:
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],  # noqa: S607 - git is where it is
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()
    there = [path for path in listed if (ROOT / path).exists()]
    top = {path.split("/")[0] for path in there} - {"src"}
    rooms = {path.split("/")[2] for path in there if path.startswith("src/assay/")}
    rooms |= {path.split("/")[1] for path in there if path.startswith("src/assay_")}
    expected = {path for path in top if not path.startswith(".") and not path.endswith(".md")}
    expected |= {path for path in rooms if not path.endswith(("__init__.py", "py.typed"))}
    assert file_map() == expected
