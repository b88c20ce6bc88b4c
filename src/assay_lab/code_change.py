"""A change of the project's code: two commits of its repository, each in a worktree of its own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

from assay.config.did_you_mean import did_you_mean
from assay.errors import AssayError, ConfigError, first_line
from assay.files.atomic import is_temporary, remove_unfinished, temporary_folder
from assay.paths import project_conf
from assay.quoting import join_first, pluralize
from assay.record.provenance import ask_git, git_environment, run_git
from assay.targets.trust import project_packages
from assay_lab.reproduce import module_path
from assay_lab.run_side import ask

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

OTHER_DATA = "the change alters the data or the split: the scores cannot be compared"
_SYNC = ("uv", "sync", "--frozen")


@final
@dataclass(frozen=True)
class CodeChange:
    """Two commits of the repository that the user stands in."""

    root: Path
    folder: Path
    """Of the project in the repository."""
    reference: str
    change: str
    notes: list[str]

    def differing(self, path: str = ".") -> list[str]:
        """Files that are not the same in both."""
        words = ("diff", "--name-only", self.reference, self.change, "--", path)
        return run_git(self.root, *words).splitlines()

    def check_contains(self, commit: str, against: Path) -> None:
        """Refuse a reference that lacks code with which the runs to compare with were trained."""
        # the commit comes from a file: nothing else may be asked of git with it
        is_hash = re.fullmatch("[0-9a-f]{40}|[0-9a-f]{64}", commit)
        if is_hash and ask_git(self.root, "rev-list", "-1", commit, f"^{self.reference}"):
            raise AssayError(
                f"{against} was trained with commit {commit[:12]}, "
                f"which {self.reference[:12]}, the reference, does not contain",
                hint=f"--against {against}@{commit[:12]}, or git merge {commit[:12]}",
            )

    def place(self, path: str, *, is_data: bool) -> str:
        """Where both sides find a file that the user's folder has; empty: each in its own worktree."""
        absolute = Path(os.path.normpath(Path.cwd() / path))
        if not absolute.is_relative_to(self.root):
            return str(absolute)
        literal = f":(literal){absolute.relative_to(self.root)}"
        differing = self.differing(literal)
        if is_data and differing:
            raise AssayError(f"{OTHER_DATA} ({join_first(differing)})")
        # what git ignores, too
        if run_git(self.root, "ls-files", "--others", "--directory", "--", literal):
            return str(absolute)
        return ""

    def keep(self) -> None:
        """Have git keep the commit of the change, which may be on no branch."""
        run_git(self.root, "update-ref", f"refs/assay/{self.change}", self.change)


def find_change(typed: str, reference: str) -> CodeChange:
    """Read which commits are to be compared; a patch becomes a commit that is on no branch."""
    here = Path.cwd()
    try:
        root = Path(run_git(here, "rev-parse", "--show-toplevel").rstrip("\n"))
    except (AssayError, OSError) as error:
        message = f"compares commits, and {here} has none: {first_line(error)}"
        hint = "git init && git add --all && git commit --message start"
        raise ConfigError(message, key="--code", hint=hint) from error
    base = _find_commit(root, reference)
    if not base:
        message = f"{reference!r} is not a commit of {root}{_suggest(root, reference)}"
        raise ConfigError(message, key="--against", hint="git commit, or --against RUNS@COMMIT")
    change = _find_commit(root, typed)
    patch = Path(typed)
    if not (change or patch.is_file()):
        message = f"{typed!r} is neither a commit of {root} nor a patch{_suggest(root, typed)}"
        hint = "git branch --all lists branches; git diff > FILE writes a patch"
        raise ConfigError(message, key="--code", hint=hint)
    status = run_git(root, "status", "--porcelain", environment=git_environment(root))
    files = [
        line for line in status.splitlines() if not line.startswith("??") or line.endswith(".py")
    ]
    notes = []
    if files:
        count = pluralize(len(files), "uncommitted file")
        notes = [f"{count} here count for neither side: the reference is commit {base[:12]}"]
    if not change:
        change = _commit_patch(root, base, patch)
    return CodeChange(root, here.relative_to(root), base, change, notes)


def _find_commit(root: Path, name: str) -> str:
    return ask_git(root, "rev-parse", "--quiet", "--verify", f"{name}^{{commit}}")


def _suggest(root: Path, name: str) -> str:
    names = ask_git(root, "for-each-ref", "--format=%(refname:short)").split()
    return did_you_mean(name, names, "; ")


def _commit_patch(root: Path, base: str, patch: Path) -> str:
    """Commit a patch, in an index of its own and on no branch."""
    problem = f"{patch} does not apply to commit {base[:12]}, as git diff {base[:12]} would: "
    with tempfile.TemporaryDirectory() as folder:
        index = git_environment(root) | {"GIT_INDEX_FILE": str(Path(folder, "index"))}
        run_git(root, "read-tree", base, environment=index)
        words = ("apply", "--cached", "--whitespace=nowarn", str(patch.resolve()))
        run_git(root, *words, environment=index, problem=problem)
        tree = run_git(root, "write-tree", environment=index).strip()
    who = ("-c", "user.name=assay", "-c", "user.email=assay@localhost")
    return run_git(root, *who, "commit-tree", tree, "-p", base, "-m", patch.name).strip()


@final
@dataclass(frozen=True)
class Worktree:
    """A commit that is checked out, with what runs its code."""

    commit: str
    origin: Path
    """The user's own repository."""
    root: Path
    folder: Path
    python: str
    environment: Mapping[str, str]

    def ask(self, question: dict[str, Any], config_dir: Path | None) -> list[Any]:
        """Train or test with this code, in a process that ends with this one; see `assay_lab.run_side`."""
        if config_dir:
            config_dir = config_dir.resolve()
            if config_dir.is_relative_to(self.origin):
                config_dir = self.root / config_dir.relative_to(self.origin)
            question["config_dir"] = str(config_dir)
        return ask(
            question,
            self.root.parent,
            python=self.python,
            folder=self.folder,
            environment=self.environment,
        )


@contextmanager
def open_worktrees(code: CodeChange, beside: Path) -> Iterator[dict[str, Worktree]]:
    """Check out the reference and the change in a temporary folder beside a path.

    The caller has locked that path: what lies there under such a name was left by a try that was killed.
    """
    remove_unfinished(beside.parent, beside.name, older_than=0)
    _forget_removed(code.root)
    try:
        with temporary_folder(beside.absolute()) as place:
            commits = {"reference": code.reference, "change": code.change}
            yield {side: _check_out(code, commits[side], place / side) for side in commits}
    finally:
        _forget_removed(code.root)


def _forget_removed(root: Path) -> None:
    """Have git forget the worktrees of tries that are gone; the user's own stay."""
    listed = ask_git(root, "worktree", "list", "--porcelain")
    for name in re.findall(r"^worktree (.+)$", listed, re.MULTILINE):
        if is_temporary(Path(name).parent.name) and not Path(name).exists():
            ask_git(root, "worktree", "remove", "--force", name)


def _check_out(code: CodeChange, commit: str, place: Path) -> Worktree:
    problem = f"commit {commit[:12]} cannot be checked out: "
    safe = git_environment(code.root)
    words = ("worktree", "add", "--quiet", "--detach", str(place), commit)
    run_git(code.root, *words, environment=safe, problem=problem)
    folder = place / code.folder
    if not folder.is_dir():
        raise AssayError(f"{problem}it has no folder {code.folder}")
    # before what is installed of the project
    names = project_packages(project_conf(folder))
    found = [path.parents[1] for name in names for path in place.rglob(f"{name}/__init__.py")]
    others = os.environ.get("PYTHONPATH", "")
    paths = [*map(str, found), module_path(code.root, code.folder, place, others)]
    python = sys.executable
    if run_git(code.root, "diff", "--name-only", commit, "--", ":(glob)**/uv.lock"):
        python = _sync(folder, place / ".venv", problem)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    return Worktree(commit, code.root, place, folder, python, environment)


def _sync(folder: Path, environment: Path, problem: str) -> str:
    """Build the environment that a worktree's uv.lock describes, which is not the one here."""
    variables = {**os.environ, "UV_PROJECT_ENVIRONMENT": str(environment)}
    try:
        subprocess.run(_SYNC, cwd=folder, env=variables, capture_output=True, check=True)  # noqa: S603 - the user's own
    except (OSError, subprocess.CalledProcessError) as error:
        said = getattr(error, "stderr", b"").decode(errors="replace") or str(error)
        raise AssayError(f"{problem}{' '.join(_SYNC)}: {first_line(said)}") from error
    return str(environment / "bin" / "python")
