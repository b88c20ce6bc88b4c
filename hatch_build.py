"""Writes the commit into what is built, so that `assay --version` of an installed wheel names it."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class CommitHook(BuildHookInterface[Any]):
    """Adds `assay/COMMIT` to sdist and wheel of a checkout; a wheel from an sdist finds it there."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Called before files are collected; an editable install asks git when it runs."""
        is_checkout = (Path(self.root) / ".git").exists() and shutil.which("git") is not None
        if version == "editable" or not is_checkout:
            return
        command = ["git", "-C", self.root, "describe", "--always", "--dirty", "--abbrev=12"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - git, with fixed arguments
        if done.returncode == 0:  # else there is no commit yet
            self.folder = tempfile.TemporaryDirectory()
            file = Path(self.folder.name) / "COMMIT"
            file.write_text(done.stdout, encoding="ascii")
            place = "assay/COMMIT" if self.target_name == "wheel" else "src/assay/COMMIT"
            build_data["force_include"][str(file)] = place
