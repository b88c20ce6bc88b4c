"""What must answer at once imports no torch."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from tests.making_runs import make_run

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


PROBE = """
import sys
from assay.cli.app import main
sys.argv = ["assay", *sys.argv[1:]]
try:
    main()
except SystemExit as error:
    code = error.code
else:
    code = 0
heavy = sorted({"torch", "lightning", "torchvision", "torchmetrics", "sklearn", "pandas"} & set(sys.modules))
print(f"code={code} heavy={heavy}", file=sys.stderr)
"""

FORKS = """
import json, os, sys
import assay.cli.app
for line in sys.stdin:
    output, probe, words = json.loads(line)
    child = os.fork()
    if not child:
        os.dup2(os.open(output, os.O_WRONLY | os.O_CREAT), 2)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        sys.argv[1:] = words
        exec(probe)
        sys.stderr.flush()
        os._exit(0)
    os.waitpid(child, 0)
    print(flush=True)
"""
"""Runs each command in a fork: what all of them import is imported once."""


@pytest.fixture(scope="module")
def forks() -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        [sys.executable, "-c", FORKS],
        env={**os.environ, "COMP_LINE": "assay train optimizer.l"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        yield process


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["--help"], 0),
        (["--version"], 0),
        (["train", "--help"], 0),
        (["configs", "optimzer"], 2),
        (["-sc", "query=bash"], 0),
        (["train", "optimizer=sdg"], 2),
        (["train", "data=table"], 2),
        (["train", "--cfg"], 0),
        (["explain", "optimizer.lr", "experiment=digits_image"], 0),
        (["diff", "", "optimizer=sgd"], 0),
        (["reproduce", "nowhere"], 1),
        (["train", "-m", "optimizer=sgd,sdg"], 2),
        (["ls", "RUNS"], 0),
        (["compare", "RUNS", "--format", "latex"], 0),
        (["best", "RUNS"], 0),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else str(value),
)
def test_without_torch(arguments: list[str], code: int, forks: subprocess.Popen[str], tmp_path: Path) -> None:
    assert forks.stdin is not None
    assert forks.stdout is not None
    make_run(tmp_path / "runs/a", metrics={"val/loss": 0.5}, best={"monitor": "val/loss", "value": 0.5})
    words = [str(tmp_path / "runs") if word == "RUNS" else word for word in arguments]
    forks.stdin.write(json.dumps([str(tmp_path / "said"), PROBE, words]) + "\n")
    forks.stdin.flush()
    assert forks.stdout.readline() == "\n"
    said = (tmp_path / "said").read_text(encoding="utf-8")
    assert said.splitlines()[-1] == f"code={code} heavy=[]", said
    assert "Traceback" not in said


def ask_bash(lines: list[str], folder: Path) -> list[list[str]]:
    """Install the function in a real bash, let it complete lines, and read what bash would offer for each."""
    script = (
        'eval "$(assay -sc install=bash)"; for line; do words=($line); '
        'COMP_LINE="$line"; COMP_POINT=${#line}; COMP_CWORD=$((${#words[@]} - 1)); hydra_bash_completion; '
        'echo "${COMPREPLY[@]}"; done'
    )
    done = subprocess.run(
        [str(shutil.which("bash")), "-c", script, "bash", *lines],
        env={**os.environ, "PATH": f"{folder}{os.pathsep}{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert not done.stderr
    return [line.split() for line in done.stdout.splitlines()]


@pytest.mark.skipif(shutil.which("bash") is None, reason="the test types into bash")
def test_in_bash(tmp_path: Path) -> None:
    command = tmp_path / "assay"
    code = tmp_path / "run.py"  # a first line with an interpreter cannot hold a path with spaces
    code.write_text("from assay.cli.app import main\nmain()\n", encoding="utf-8")
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{code}" "$@"\n', encoding="utf-8")
    command.chmod(0o755)
    assert ask_bash(["assay tr", "assay train optimizer=ad"], tmp_path) == [
        ["train", "try"],
        ["optimizer=adagrad", "optimizer=adam", "optimizer=adamw"],
    ]
