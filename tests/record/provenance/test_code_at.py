"""A commit with a patch on top, written beside the checkout, which stays as it is."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import git
import pytest

from assay.errors import AssayError
from assay.record.code_patch import code_at
from assay.record.provenance import git_state

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def project(tmp_path: Path, own_git: None) -> Path:
    repository = git.Repo.init(tmp_path / "project", initial_branch="main")
    (tmp_path / "project" / "a.py").write_text("x = 1\n")
    (tmp_path / "project" / "inner").mkdir()
    (tmp_path / "project" / "inner" / "run.sh").write_text("true\n")
    (tmp_path / "project" / "inner" / "run.sh").chmod(0o755)
    repository.git.add("--all")
    repository.git.commit("-m", "start")
    return tmp_path / "project"


def patched(project: Path) -> tuple[str, Path]:
    """Commit and patch of a working tree with changes, of which nothing is left then."""
    (project / "a.py").write_text("x = 2\n")
    (project / "b.py").write_bytes("y = 'ü'\n".encode("latin-1"))
    state, patch = git_state(project)
    assert state is not None
    (project.parent / "code.patch").write_text(patch, "utf-8", "surrogateescape")
    (project / "a.py").write_text("x = 1\n")
    (project / "b.py").unlink()
    return state["commit"], project.parent / "code.patch"


def test_a_commit_and_its_patch(project: Path) -> None:
    commit, patch = patched(project)
    (project / "a.py").write_text("x = 3\n")
    git.Repo(project).git.commit("-a", "-m", "more")
    hook = project / ".git" / "hooks" / "post-checkout"
    hook.write_text("#!/bin/sh\ntouch hook-ran\n")
    hook.chmod(0o755)
    kept = {path: path.read_bytes() for path in project.rglob("*") if path.is_file()}
    # Also within a repository, where `git apply` would leave files outside it alone.
    for folder in (project.parent / "code", project / "scratch" / "code"):
        code_at(project, commit, patch, folder)
        assert (folder / "a.py").read_text() == "x = 2\n"
        assert (folder / "b.py").read_bytes() == "y = 'ü'\n".encode("latin-1")
        assert os.access(folder / "inner" / "run.sh", os.X_OK)
    now = {path: path.read_bytes() for path in project.rglob("*") if path.is_file()}
    assert {path: data for path, data in now.items() if "scratch" not in path.parts} == kept


def test_before_the_first_commit_there_is_the_patch_alone(project: Path, tmp_path: Path) -> None:
    git.Repo.init(tmp_path / "young")
    (tmp_path / "young" / "a.py").write_text("x = 1\n")
    (tmp_path / "code.patch").write_text(git_state(tmp_path / "young")[1])
    code_at(tmp_path / "young", "", tmp_path / "code.patch", tmp_path / "code")
    assert (tmp_path / "code" / "a.py").read_text() == "x = 1\n"


@pytest.mark.parametrize("commit", ["0" * 40, "HEAD", "--help", "f" * 39])
def test_a_commit_that_is_not_there(project: Path, tmp_path: Path, commit: str) -> None:
    with pytest.raises(AssayError, match="is not in"):
        code_at(project, commit, None, tmp_path / "code")
    assert not (tmp_path / "code").exists()


def test_a_patch_that_leaves_the_folder(project: Path, tmp_path: Path) -> None:
    commit, patch = patched(project)
    text = patch.read_text("utf-8", "surrogateescape").replace("b/b.py", "b/../../evil.py")
    patch.write_text(text, "utf-8", "surrogateescape")
    with pytest.raises(AssayError, match=r"code\.patch does not apply"):
        code_at(project, commit, patch, tmp_path / "deep" / "code")
    assert not list(tmp_path.rglob("evil.py"))


def test_a_patch_through_a_link(project: Path, tmp_path: Path) -> None:
    """A patch that makes a link to the outside and writes through it."""
    commit = git.Repo(project).head.commit.hexsha
    link = "diff --git a/out b/out\nnew file mode 120000\n--- /dev/null\n+++ b/out\n@@ -0,0 +1 @@\n"
    file = "diff --git a/out/evil.py b/out/evil.py\nnew file mode 100644\n--- /dev/null\n+++ b/out/evil.py\n"
    text = f"{link}+{tmp_path}\n\\ No newline at end of file\n{file}@@ -0,0 +1 @@\n+x = 1\n"
    (tmp_path / "code.patch").write_text(text)
    with pytest.raises(AssayError, match=r"code\.patch does not apply"):
        code_at(project, commit, tmp_path / "code.patch", tmp_path / "code")
    assert not (tmp_path / "evil.py").exists()


def test_neither_commit_nor_patch(project: Path, tmp_path: Path) -> None:
    with pytest.raises(AssayError, match="neither a commit nor a patch"):
        code_at(project, "", None, tmp_path / "code")
