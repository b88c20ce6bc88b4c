"""The command line, as a process and in this one."""

from __future__ import annotations

import json
import sys
from contextlib import chdir
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.conftest import unchanged_process
from typer.testing import CliRunner

from assay.cli.app import app

if TYPE_CHECKING:
    from typer.testing import Result

ASSAY = (sys.executable, "-c", "from assay.cli.app import main; main()")


def typed(*words: object, code: int = 0, folder: Path = Path()) -> Result:
    """What a command prints; it must end with this code."""
    with chdir(folder), unchanged_process():
        done = CliRunner().invoke(app, [str(word) for word in words])
    assert done.exit_code == code, done.output
    return done


def documented(*words: object, folder: Path = Path()) -> tuple[int, dict[str, Any]]:
    """The exit code of a command, and the document that it prints."""
    with chdir(folder), unchanged_process():
        done = CliRunner().invoke(app, [*map(str, words), "--json"])
    return done.exit_code, json.loads(done.stdout)
