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
