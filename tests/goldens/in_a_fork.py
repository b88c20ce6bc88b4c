"""Run `main` in a fork of the warm process: one command with its streams apart, or many that are refused."""

from __future__ import annotations

import json
import os
import re
import shlex
import sys
from pathlib import Path
from typing import Final

STDERR: Final = "GOLDEN_STDERR"
"""The environment variable that names the file for what goes to standard error."""
MANY: Final = "GOLDEN_MANY"
"""The one that names a JSON file of command lines; how each ended is written in its place."""


def main() -> None:
    """Run what the command line says."""
    from assay.cli.app import main as run_assay

    path = Path(os.environ.pop(STDERR))
    os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644), sys.stderr.fileno())
    words = sys.argv[1:]
    while words and re.match(r"[A-Z_]+=", words[0]):
        name, _, value = words.pop(0).partition("=")
        os.environ[name] = value
    if MANY in os.environ:
        _run_many(Path(os.environ.pop(MANY)))
    else:
        sys.argv = ["assay", *words]
        sys.modules["__main__"].__package__ = None  # click would name the program after it
        run_assay()


def _run_many(path: Path) -> None:
    from typer.testing import CliRunner

    from assay.cli.app import app

    ends = []
    for line in json.loads(path.read_text(encoding="utf-8")):
        result = CliRunner().invoke(app, shlex.split(line), prog_name="assay")
        ends.append([result.exit_code, result.stdout, result.stderr])
    path.write_text(json.dumps(ends), encoding="utf-8")
