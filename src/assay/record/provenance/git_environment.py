"""Git over a folder that somebody else may have set up: nothing that its own settings name is run."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_SETTINGS = {
    "core.fsmonitor": "false",
    "core.hooksPath": os.devnull,
    "submodule.recurse": "false",
    "diff.submodule": "short",
    "diff.ignoreSubmodules": "dirty",
}
_VARIABLES = {
    "GIT_ALLOW_PROTOCOL": "none",  # a partial clone would fetch what it lacks, by whatever its remote names
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_TERMINAL_PROMPT": "0",
}


def git_environment(git_dir: Path, common_dir: Path) -> dict[str, str]:
    """Environment variables with which git runs no hook, monitor, filter or helper of a repository's own.

    Filters of the user's own settings, such as those of Git LFS, still run.

    Args:
        git_dir: `.git` of the working tree.
        common_dir: `.git` that all working trees of the repository share.
    """
    settings = dict(_SETTINGS)
    if any(_may_name_filters(path) for path in (common_dir / "config", git_dir / "config.worktree")):
        settings |= _without_own_filters(git_dir)
    first = _number(os.environ.get("GIT_CONFIG_COUNT", "0"))  # what the user has set this way stays
    variables = {**_VARIABLES, "GIT_CONFIG_COUNT": str(first + len(settings))}
    for number, (key, value) in enumerate(settings.items(), start=first):
        variables |= {f"GIT_CONFIG_KEY_{number}": key, f"GIT_CONFIG_VALUE_{number}": value}
    return variables


def _may_name_filters(path: Path) -> bool:
    try:
        text = path.read_bytes().lower()
    except OSError:
        return False
    return b"filter" in text or b"include" in text


def _without_own_filters(git_dir: Path) -> dict[str, str]:
    """Each filter that the repository's own settings name, set to the user's own or to none."""
    users: dict[str, str] = {}
    own: list[str] = []
    for scope, key, value in _filters(git_dir):
        if scope in ("local", "worktree"):
            own.append(key)
        else:
            users[key] = value
    return {key: users.get(key, "false" if key.endswith(".required") else "") for key in own}


def _filters(git_dir: Path) -> Iterator[tuple[str, str, str]]:
    """Scope, key and value of every setting of a filter, in the order in which git reads them."""
    command = ["git", "config", "--includes", "--show-scope", "--null", "--get-regexp", r"^filter\."]
    done = subprocess.run(  # noqa: S603 - git, with fixed arguments
        command, env={**os.environ, "GIT_DIR": str(git_dir)}, capture_output=True, check=False
    )
    words = done.stdout.decode("utf-8", "surrogateescape").split("\0")
    for scope, pair in zip(words[::2], words[1::2], strict=False):  # an empty word is left at the end
        key, _, value = pair.partition("\n")
        yield scope, key, value


def _number(text: str) -> int:
    return int(text) if text.isdigit() else 0


def locate_git(folder: Path) -> Mapping[str, str]:
    """As `git_environment`, for the repository that a folder lies in; what suits any where there is none.

    Args:
        folder: Any folder of a working tree.
    """
    import git

    try:
        with git.Repo(folder, search_parent_directories=True) as repository:
            return git_environment(Path(repository.git_dir), Path(repository.common_dir))
    except (git.GitError, OSError, ValueError):
        return git_environment(folder, folder)
