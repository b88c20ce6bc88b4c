"""The code of a run, brought back beside the checkout: its commit, with its patch on top."""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING, Any

from assay.errors import AssayError, first_line
from assay.record.provenance.code_patch import locate_git

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path


def code_at(repository: Path, commit: str, patch: Path | None, folder: Path) -> None:
    """Write the files of a commit into a folder, and apply a patch to them.

    Neither the checkout nor what git keeps about it is touched, and nothing that the repository's own
    settings name runs: no hook, no filter.

    Args:
        repository: Root of a working tree whose repository has the commit.
        commit: Full hash; empty for a repository that had none yet.
        patch: What the commit lacks; None for nothing.
        folder: Must not exist.

    Raises:
        AssayError: The commit is not there, the patch does not apply to it, or there is neither.
    """
    safe = locate_git(repository)
    if commit and not _has(repository, commit, safe):
        raise AssayError(
            f"the run's code cannot be brought back: commit {commit[:12]} is not in {repository}",
            hint="git fetch, or reproduce the run in a clone that has it",
        )
    if not commit and patch is None:
        raise AssayError("the run's code cannot be brought back: it has neither a commit nor a patch")
    folder.mkdir(parents=True)
    if commit:
        index = {**safe, "GIT_INDEX_FILE": str(folder.parent / "index")}
        _git(repository, ["read-tree", commit], index)
        _git(repository, ["checkout-index", "--all", f"--prefix={folder}{os.sep}"], index)
    if patch is not None:
        # As if there were no repository around: the folder may lie in one.
        alone = {**safe, "GIT_CEILING_DIRECTORIES": str(folder.parent)}
        done = _run(folder, ["apply", "--binary", "--whitespace=nowarn", str(patch.resolve())], alone)
        if done.returncode:
            raise AssayError(
                f"the run's code cannot be brought back: code.patch does not apply to commit {commit[:12]}: "
                f"{first_line(done.stderr) or 'git failed'}"
            )


def _has(repository: Path, commit: str, environment: Mapping[str, str]) -> bool:
    # The hash comes from a file: nothing else may be asked of git with it.
    if len(commit) not in (40, 64) or not all(letter in "0123456789abcdef" for letter in commit):
        return False
    return not _run(repository, ["cat-file", "-e", f"{commit}^{{commit}}"], environment).returncode


def _git(folder: Path, arguments: Sequence[str], environment: Mapping[str, str]) -> None:
    done = _run(folder, arguments, environment)
    if done.returncode:
        raise AssayError(f"the run's code cannot be brought back: {first_line(done.stderr) or 'git failed'}")


def _run(
    folder: Path, arguments: Sequence[str], environment: Mapping[str, str]
) -> subprocess.CompletedProcess[Any]:
    return subprocess.run(  # noqa: S603 - git, with a hash that was looked at and paths of our own
        ["git", *arguments],  # noqa: S607 - the user's git
        cwd=folder,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )
