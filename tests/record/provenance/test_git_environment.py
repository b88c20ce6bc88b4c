"""A repository that somebody else has set up runs nothing when its state is read or its code brought back."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from assay.record.code_patch import code_at, git_environment
from assay.record.provenance import git_state


@pytest.fixture
def own_git(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The user's own settings: empty, and the tests may add to them."""
    for name in [name for name in os.environ if name.startswith("GIT_")]:
        monkeypatch.delenv(name)
    settings = tmp_path / "gitconfig"
    settings.write_text("[user]\n\tname = A\n\temail = a@example.org\n[protocol]\n\tallow = always\n")
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(settings))
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    return settings


def run(folder: Path, *arguments: str, check: bool = True) -> str:
    done = subprocess.run(
        ["git", *arguments],  # noqa: S607 - the machine's git
        cwd=folder,
        capture_output=True,
        text=True,
        check=check,
    )
    return done.stdout.strip()


def script(path: Path, marker: Path, then: str = "cat") -> str:
    """A program that leaves a marker."""
    path.write_text(f"#!/bin/sh\ntouch '{marker}'\n{then}\n")
    path.chmod(0o755)
    return str(path)


@pytest.fixture
def trap(tmp_path: Path, own_git: Path) -> tuple[Path, Path]:
    """A repository whose settings run programs, and the folder of their markers."""
    root, markers, programs = tmp_path / "trap", tmp_path / "markers", tmp_path / "programs"
    for folder in (root, markers, programs):
        folder.mkdir()
    run(root, "init", "-b", "main")
    (root / "model.py").write_text("x = 1\n")
    (root / "other.py").write_text("x = 1\n")
    run(root, "add", "--all")
    run(root, "commit", "-m", "start")
    run(root, "-c", "protocol.file.allow=always", "submodule", "add", "-q", str(root), "inner")
    run(root, "commit", "-m", "inner")

    def program(name: str, then: str = "cat") -> str:
        return script(programs / name, markers / name, then)

    (root / ".gitattributes").write_text("*.py filter=evil diff=evil\n*.yaml filter=slow\n")
    (root / "settings.yaml").write_text("lr: 0.1\n")
    (programs / "included").write_text(f'[filter "slow"]\n\tprocess = {program("process", "exit 1")}\n')
    settings = {
        "core.fsmonitor": program("fsmonitor", "exit 1"),
        "filter.evil.clean": program("clean"),
        "filter.evil.smudge": program("smudge"),
        "filter.evil.required": "true",
        "diff.evil.command": program("command", "exit 0"),
        "diff.evil.textconv": program("textconv"),
        "diff.external": program("external", "exit 0"),
        "include.path": str(programs / "included"),
    }
    for name, value in settings.items():
        run(root, "config", name, value)
    hook = Path(script(root / ".git" / "hooks" / "post-index-change", markers / "hook", "exit 0"))
    assert hook.is_file()
    run(root / "inner", "config", "core.fsmonitor", program("inner", "exit 1"))
    for name in ("model.py", "inner/model.py"):
        (root / name).write_text("x = 2\n")
    return root, markers


def test_the_trap_springs_under_plain_git(trap: tuple[Path, Path]) -> None:
    root, markers = trap
    run(root, "status", check=False)
    run(root, "diff", "HEAD", check=False)
    run(root, "add", "--intent-to-add", "settings.yaml", check=False)
    run(root, "checkout-index", "--force", "--all", "--prefix=../out/", check=False)
    fired = {path.name for path in markers.iterdir()}
    assert {"fsmonitor", "clean", "smudge", "process", "external", "hook", "inner"} <= fired | {"command"}


def test_reading_the_state_runs_nothing(trap: tuple[Path, Path]) -> None:
    root, markers = trap
    state, patch = git_state(root)
    assert not list(markers.iterdir())
    assert state is not None
    assert state["dirty"]
    assert state["patch_complete"]
    assert "+x = 2" in patch
    assert "settings.yaml" in patch


def test_bringing_code_back_runs_nothing(trap: tuple[Path, Path], tmp_path: Path) -> None:
    root, markers = trap
    state, patch = git_state(root)
    assert state is not None
    (tmp_path / "code.patch").write_text(patch, encoding="utf-8")
    code_at(root, state["commit"], tmp_path / "code.patch", tmp_path / "code")
    assert not list(markers.iterdir())
    assert (tmp_path / "code" / "model.py").read_text() == "x = 2\n"


def test_a_partial_clone_fetches_nothing(tmp_path: Path, own_git: Path) -> None:
    root, marker = tmp_path / "partial", tmp_path / "fetched"
    root.mkdir()
    run(root, "init", "-b", "main")
    (root / "model.py").write_text("x = 1\n")
    run(root, "add", "--all")
    run(root, "commit", "-m", "start")
    blob = run(root, "rev-parse", "HEAD:model.py")
    (root / ".git" / "objects" / blob[:2] / blob[2:]).unlink()
    program = script(tmp_path / "remote", marker, "exit 1")
    for name, value in {
        "core.repositoryFormatVersion": "1",
        "extensions.partialClone": "origin",
        "remote.origin.promisor": "true",
        "remote.origin.url": f"ext::{program}",
        "protocol.ext.allow": "always",
    }.items():
        run(root, "config", name, value)
    (root / "model.py").write_text("x = 2\n")
    git_state(root)
    assert not marker.exists()
    run(root, "diff", "HEAD", check=False)
    assert marker.exists(), "plain git would have asked the remote"


def test_filters_of_the_users_own_settings_run(tmp_path: Path, own_git: Path) -> None:
    root = tmp_path / "project"
    root.mkdir()
    run(root, "init", "-b", "main")
    own_git.write_text(own_git.read_text() + '[filter "up"]\n\tclean = tr a-z A-Z\n')
    (root / ".gitattributes").write_text("*.py filter=up\n")
    (root / "model.py").write_text("x = 1\n")
    run(root, "add", "--all")
    run(root, "commit", "-m", "start")
    run(root, "config", "filter.up.clean", "false")  # the repository may not replace it
    (root / "model.py").write_text("x = 2\n")
    state, patch = git_state(root)
    assert state is not None
    assert "+X = 2" in patch


def test_what_the_user_sets_by_the_environment_stays(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("GIT_CONFIG_COUNT", "1")
    monkeypatch.setenv("GIT_CONFIG_KEY_0", "core.longpaths")
    monkeypatch.setenv("GIT_CONFIG_VALUE_0", "true")
    variables = git_environment(tmp_path)
    assert "GIT_CONFIG_KEY_0" not in variables
    assert variables["GIT_CONFIG_KEY_1"] == "core.fsmonitor"
    assert int(variables["GIT_CONFIG_COUNT"]) == 1 + sum("_KEY_" in name for name in variables)
