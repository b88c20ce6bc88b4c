"""The core trains, resumes and loads without any one of the rooms beside it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING, get_args

import pytest

from assay.rooms import ROOMS, Kind

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ROOT = Path(__file__).parents[2]
SRC = ROOT / "src"
WITHOUT = """
import contextlib, importlib, json, os, sys
import lightning.pytorch, pandas, sklearn.datasets, torch, torchmetrics  # once for all rooms

def call(*words):
    from assay.cli.app import main
    sys.argv = ["assay", *words]
    try:
        main()
    except SystemExit as end:
        assert not end.code, f"{words} ended with {end.code}"

def live_without(source, folder, src):
    os.chdir(folder)
    sys.path[:] = [src, *(path for path in sys.path if path != source)]
    words = ["data=wine", "model=mlp", "device=cpu", "hydra.run.dir=run"]
    call("train", *words, "trainer.max_epochs=1")
    call("resume", "run", "trainer.max_epochs=2")
    import assay
    answer = assay.load("run")([[13.0, 2, 2.3, 19, 99, 2.3, 2, 0.3, 1.6, 5, 1, 2.6, 740]])
    assert answer.probabilities.shape == (1, 3)
    record = json.load(open("run/record.json"))
    rooms = {name.partition(".")[0] for name in sys.modules if name.startswith("assay_")}
    print(json.dumps({"status": record["status"], "resumed": len(record["resumed"]), "rooms": sorted(rooms)}))

for line in sys.stdin:
    source, folder, src = json.loads(line)
    child = os.fork()
    if not child:
        code = 1
        with open(f"{folder}/log.txt", "w") as log:
            os.dup2(log.fileno(), 1)
            os.dup2(log.fileno(), 2)
            try:
                live_without(source, folder, src)
                code = 0
            finally:
                sys.stdout.flush()
                sys.stderr.flush()
                if code:
                    import traceback
                    traceback.print_exc()
                    sys.stderr.flush()
                os._exit(code)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


@pytest.fixture(scope="module")
def process() -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        [sys.executable, "-P", "-W", "ignore", "-c", WITHOUT],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as started:
        yield started


@pytest.mark.always("all of them")
@pytest.mark.parametrize("room", [*ROOMS, "all of them"])
def test_the_core_lives_without(room: str, process: subprocess.Popen[str], tmp_path: Path) -> None:
    packages = tmp_path / "src"
    packages.mkdir()
    missing = ROOMS if room == "all of them" else (room,)
    for package in {"assay", *ROOMS} - {*missing}:
        (packages / package).symlink_to(SRC / package)
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(json.dumps([str(SRC), str(tmp_path), str(packages)]) + "\n")
    process.stdin.flush()
    code = process.stdout.readline().strip()
    log = (tmp_path / "log.txt").read_text(encoding="utf-8")
    assert code == "0", log
    seen = json.loads(log.splitlines()[-1])
    assert seen["status"] == "finished"
    assert seen["resumed"] == 1
    assert not {*seen["rooms"]} & {*missing}, os.linesep.join(seen["rooms"])


def test_every_package_is_a_room() -> None:
    packages = {path.parent.name for path in SRC.glob("*/__init__.py")}
    assert packages == {"assay", *ROOMS}


def test_what_the_pages_name_is_there() -> None:
    for page in (ROOT / "README.md", *ROOT.glob("docs/*.md")):
        for name in re.findall(r"`(assay(?:_\w+)?(?:\.\w+)+)", page.read_text(encoding="utf-8")):
            if name.removeprefix("assay.") not in get_args(Kind):
                resolve_name(name)


MINE = """
from typing import Annotated
import typer

def count(document, word: Annotated[str, typer.Argument()]):
    \"\"\"Count the letters of a word.\"\"\"
    document.say("count", {"letters": len(word)})

def give_hint(error, overrides, config_dir):
    error.hint = "ask the package mine"

VERBS = {"Look": {"count": count}}
"""


@pytest.fixture
def run(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """`assay` where a package of others is installed."""
    (tmp_path / "mine.py").write_text(MINE, encoding="utf-8")
    about = tmp_path / "mine-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: mine\nVersion: 1.0\n", encoding="utf-8")
    named = "[assay.verbs]\nmine = mine:VERBS\n[assay.error_help]\nmine = mine:give_hint\n"
    (about / "entry_points.txt").write_text(named, encoding="utf-8")

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "assay", *words],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(tmp_path)},
            capture_output=True,
            text=True,
            check=False,
        )

    return run


def test_a_package_of_others_that_cannot_be_loaded_is_left_out_and_named(
    run: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path
) -> None:
    (tmp_path / "mine.py").write_text("import nowhere_to_be_found\n", encoding="utf-8")
    listed = run("configs", "logger")
    assert listed.returncode == 0
    assert "tensorboard" in listed.stdout
    assert listed.stderr.startswith("warning: mine 1.0 adds no assay.verbs: ModuleNotFoundError: ")
    assert listed.stderr.endswith("No module named 'nowhere_to_be_found' (mine.py:1, in <module>)\n")


@pytest.mark.parametrize(
    ("kind", "message"),
    [("NoSuchType", "NameError: name 'NoSuchType' is not defined"), ("int | str", "AssertionError: ")],
)
def test_a_verb_of_others_that_cannot_be_a_command_is_left_out_and_named(
    run: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path, kind: str, message: str
) -> None:
    lines = ["from __future__ import annotations", MINE.replace("Annotated[str,", f"Annotated[{kind},")]
    (tmp_path / "mine.py").write_text("\n".join(lines), encoding="utf-8")
    listed = run("configs", "logger")
    assert listed.returncode == 0
    assert "tensorboard" in listed.stdout
    assert listed.stderr.startswith(f"warning: mine adds no verb count: {message}")


def test_a_package_of_others_adds_a_verb_and_help_for_errors(
    run: Callable[..., subprocess.CompletedProcess[str]],
) -> None:
    assert "  count      Count the letters of a word." in run("--help").stdout
    assert json.loads(run("count", "seven", "--json").stdout)["letters"] == 5
    assert "ask the package mine" in run("train", "optimizer.lrr=1").stderr
