"""What git would lose: the changes of a working tree as one patch, and the code brought back by it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from assay.errors import AssayError, first_line
from assay.record.secrets import redact

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import git


_SETTINGS = {
    "core.fsmonitor": "false",
    "core.hooksPath": os.devnull,
    "core.quotePath": "false",
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


def git_environment(git_dir: Path) -> dict[str, str]:
    """Environment variables with which git runs no hook, monitor, filter or helper of a repository's own."""
    settings = {**_SETTINGS, **_disable_filters(git_dir)}
    count = os.environ.get("GIT_CONFIG_COUNT", "0")  # what the user has set this way stays
    first = int(count) if count.isdigit() else 0
    variables = {**_VARIABLES, "GIT_CONFIG_COUNT": str(first + len(settings))}
    for number, (key, value) in enumerate(settings.items(), start=first):
        variables |= {f"GIT_CONFIG_KEY_{number}": key, f"GIT_CONFIG_VALUE_{number}": value}
    return variables


def _disable_filters(git_dir: Path) -> dict[str, str]:
    """Each filter that the repository's own settings name, set to the user's own or to none."""
    command = ["git", "config", "--includes", "--show-scope", "--null", "--get-regexp", r"^filter\."]
    environment = {**os.environ, "GIT_DIR": str(git_dir)}
    done = subprocess.run(command, env=environment, capture_output=True, check=False)  # noqa: S603 - git, with fixed arguments
    words = done.stdout.decode("utf-8", "surrogateescape").split("\0")
    users: dict[str, str] = {}
    options: list[str] = []
    for scope, pair in zip(words[::2], words[1::2], strict=False):  # an empty word is left at the end
        key, _, value = pair.partition("\n")
        if scope in ("local", "worktree"):
            options.append(key)
        else:
            users[key] = value
    return {key: users.get(key, "false" if key.endswith(".required") else "") for key in options}


def safe_git_environment(folder: Path) -> Mapping[str, str]:
    """As `git_environment`, for the repository that a folder lies in; what suits any where there is none."""
    import git

    try:
        with git.Repo(folder, search_parent_directories=True) as repository:
            return git_environment(Path(repository.git_dir))
    except (git.GitError, OSError, ValueError):
        return git_environment(folder)


_SOURCES = (".py", ".pyi", ".yaml", ".yml", ".toml", ".cfg", ".json", ".sh")
_CREDENTIALS = re.compile(
    r"(.*[._-])?(credentials?|secrets?|env|tokens?|passwords?|service[_-]?account|kaggle|client[_-]secrets?"
    r"|auth|api[_-]?keys?)([._-].*)?\.(?!pyi?$)\w+",
    re.IGNORECASE,
)
"""Files that hold nothing but secrets; a `tokens.py` is code, in which secrets are struck out."""
_LARGEST_UNTRACKED = 1 << 20
_LARGEST_PATCH = 20 << 20
# Whatever the user's own settings make of a diff, this is what `git apply` reads.
_FORMAT = (
    *("--binary", "--full-index", "--no-color", "--no-ext-diff", "--no-textconv", "--no-renames"),
    *("--no-relative", "--ignore-submodules=dirty", "--src-prefix=a/", "--dst-prefix=b/"),
)


def code_patch(repository: git.Repo, largest: int = _LARGEST_PATCH) -> tuple[str, bool]:
    """Changes against HEAD, and the source files that git neither tracks nor ignores."""
    root = Path(repository.working_dir)
    with tempfile.TemporaryDirectory() as folder:
        # Announced in a copy of the index, so that one diff shows everything and the user's own stays.
        index = Path(folder) / "index"
        if (index_file := Path(repository.git_dir) / "index").is_file():
            shutil.copy2(index_file, index)  # with its time, by which git tells what may have changed since
        common = Path(repository.common_dir).resolve()
        environment = {
            **git_environment(Path(repository.git_dir)),
            "GIT_INDEX_FILE": str(index),
            "GIT_OBJECT_DIRECTORY": folder,
            "GIT_ALTERNATE_OBJECT_DIRECTORIES": str(common / "objects"),
        }
        with repository.git.custom_environment(**environment):
            all_there = _announce_untracked(repository, root)
            base = "HEAD" if head_of(repository) else repository.git.hash_object("-t", "tree", os.devnull)
            content = repository.git.diff(
                base, *_FORMAT, "--", ":/", stdout_as_string=False, strip_newline_in_stdout=False
            )
    text = bytes(content).decode("utf-8", "surrogateescape")
    redacted = redact(text, code=True)
    if len(redacted) > largest:
        return "", False
    return redacted, all_there and redacted == text


def head_of(repository: git.Repo) -> str | None:
    """The commit that is checked out, in hexadecimal digits; None before the first."""
    from git import SymbolicReference

    try:  # GitPython's `head.commit` starts a process to look the commit up
        return SymbolicReference.dereference_recursive(repository, repository.head.path)
    except ValueError:
        return None


def _announce_untracked(repository: git.Repo, root: Path) -> bool:
    """Add the untracked source files with intent; False where some are too large, or hold credentials."""
    listed = repository.git.ls_files("--others", "--exclude-standard", "--full-name", "-z", ":/").split("\0")
    skipped: dict[Path, bool] = {}
    found = [
        root / name
        for name in listed
        if name.endswith(_SOURCES) and not _is_generated((root / name).parent, root, skipped)
    ]
    kept = [
        path
        for path in found
        if path.lstat().st_size <= _LARGEST_UNTRACKED and not _CREDENTIALS.fullmatch(path.name)
    ]
    if sources := [path.relative_to(root).as_posix() for path in kept]:
        listing = "\0".join(f":(top,literal){name}" for name in sources).encode("utf-8", "surrogateescape")
        with tempfile.TemporaryFile() as file:
            file.write(listing)
            file.seek(0)
            repository.git.add(
                "--intent-to-add", "--pathspec-from-file=-", "--pathspec-file-nul", istream=file
            )
    return kept == found


def _is_generated(folder: Path, root: Path, seen: dict[Path, bool]) -> bool:
    """Whether a folder lies in a run directory or a virtual environment."""
    if folder not in seen:
        here = folder != root and ((folder / "record.json").is_file() or (folder / "pyvenv.cfg").is_file())
        seen[folder] = here or (folder != root and _is_generated(folder.parent, root, seen))
    return seen[folder]


def checkout_code(repository: Path, commit: str, patch: Path | None, folder: Path) -> None:
    """Write the files of a commit into a folder, and apply a patch to them."""
    safe = safe_git_environment(repository)
    if commit and not _has_commit(repository, commit, safe):
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
        problem = f"code.patch does not apply to commit {commit[:12]}: "
        _git(folder, ["apply", "--binary", "--whitespace=nowarn", str(patch.resolve())], alone, problem)


def _has_commit(repository: Path, commit: str, environment: Mapping[str, str]) -> bool:
    # The hash comes from a file: nothing else may be asked of git with it.
    if len(commit) not in (40, 64) or not all(letter in "0123456789abcdef" for letter in commit):
        return False
    return not _run(repository, ["cat-file", "-e", f"{commit}^{{commit}}"], environment).returncode


def _git(folder: Path, arguments: Sequence[str], environment: Mapping[str, str], problem: str = "") -> None:
    done = _run(folder, arguments, environment)
    if done.returncode:
        reason = first_line(done.stderr) or "git failed"
        raise AssayError(f"the run's code cannot be brought back: {problem}{reason}")


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
