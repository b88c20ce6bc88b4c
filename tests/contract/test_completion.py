"""Tab completion answers in a shell."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path


def ask_bash(line: str, folder: Path) -> list[str]:
    """Install the function in a real bash, let it complete a line, and read what bash would offer."""
    script = (
        'eval "$(assay -sc install=bash)"; '
        'COMP_LINE="$1"; COMP_POINT=${#1}; COMP_CWORD=$2; hydra_bash_completion; '
        'printf "%s\\n" "${COMPREPLY[@]}"'
    )
    done = subprocess.run(
        [str(shutil.which("bash")), "-c", script, "bash", line, str(len(line.split()) - 1)],
        env={**os.environ, "PATH": f"{folder}{os.pathsep}{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert not done.stderr
    return done.stdout.split()


@pytest.mark.skipif(shutil.which("bash") is None, reason="the test types into bash")
def test_in_bash(tmp_path: Path) -> None:
    command = tmp_path / "assay"
    code = tmp_path / "run.py"  # a first line with an interpreter cannot hold a path with spaces
    code.write_text("from assay.cli.app import main\nmain()\n", encoding="utf-8")
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{code}" "$@"\n', encoding="utf-8")
    command.chmod(0o755)
    assert ask_bash("assay tr", tmp_path) == ["train", "try"]
    assert ask_bash("assay train optimizer=ad", tmp_path) == [
        "optimizer=adagrad",
        "optimizer=adam",
        "optimizer=adamw",
    ]
