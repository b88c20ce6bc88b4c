"""Where a run came from is said, and without secrets."""

import hashlib
import importlib.metadata
import json
import os
import subprocess
import sys
from pathlib import Path

import git
import psutil
import pytest

from assay.errors import ConfigError
from assay.record import provenance
from assay.record.provenance import (
    changed_files,
    check_clean,
    cpu_model,
    git_state,
    lock_sha256,
    machine,
    numeric_environment,
    packages,
    usable_cores,
    without_credentials,
)

pytestmark = pytest.mark.usefixtures("own_git")


@pytest.fixture
def project(tmp_path: Path) -> git.Repo:
    repository = git.Repo.init(tmp_path / "project", initial_branch="main")
    (tmp_path / "project" / "a.py").write_text("x = 1\n")
    repository.git.add("--all")
    repository.git.commit("-m", "start")
    return repository


def test_a_clean_project(project: git.Repo) -> None:
    project.create_remote("origin", "https://me:hunter2@example.org/x.git")
    state, patch = git_state(Path(project.working_dir))
    assert patch == ""
    assert state == {
        "commit": project.git.rev_parse("HEAD"),
        "branch": "main",
        "dirty": False,
        "remote": "https://example.org/x.git",
        "patch_complete": True,
        "folder": ".",
    }
    json.dumps(state)


def test_a_changed_project_seen_from_a_folder_within(project: git.Repo) -> None:
    root = Path(project.working_dir)
    (root / "folder").mkdir()
    (root / "folder" / "new.py").write_text("y = 2\n")
    state, patch = git_state(root / "folder")
    assert state is not None
    assert state["dirty"]
    assert state["remote"] is None
    assert state["folder"] == "folder"
    assert "+y = 2" in patch


def test_what_is_no_source_does_not_make_it_dirty(project: git.Repo) -> None:
    (Path(project.working_dir) / "photo.jpg").write_bytes(b"\xff")
    state, _ = git_state(Path(project.working_dir))
    assert state is not None
    assert not state["dirty"]


def test_a_detached_head(project: git.Repo) -> None:
    project.git.checkout("--detach")
    state, _ = git_state(Path(project.working_dir))
    assert state is not None
    assert state["branch"] is None
    assert state["commit"] == project.head.commit.hexsha


def test_before_the_first_commit(tmp_path: Path) -> None:
    git.Repo.init(tmp_path / "young", initial_branch="main")
    (tmp_path / "young" / "a.py").write_text("x = 1\n")
    state, patch = git_state(tmp_path / "young")
    assert state is not None
    assert (state["commit"], state["branch"], state["dirty"]) == (None, "main", True)
    assert "+x = 1" in patch


def test_the_remote_is_the_one_the_branch_follows(project: git.Repo) -> None:
    for name in ("aaa", "origin", "fork"):
        project.create_remote(name, f"https://example.org/{name}.git")
    state, _ = git_state(Path(project.working_dir))
    assert state is not None
    assert state["remote"] == "https://example.org/origin.git"
    project.git.config("branch.main.remote", "fork")
    project.git.config("branch.main.merge", "refs/heads/main")
    state, _ = git_state(Path(project.working_dir))
    assert state is not None
    assert state["remote"] == "https://example.org/fork.git"


def test_outside_a_repository_and_in_a_bare_one(tmp_path: Path) -> None:
    (tmp_path / "plain").mkdir()
    assert git_state(tmp_path / "plain") == (None, "")
    git.Repo.init(tmp_path / "bare.git", bare=True)
    assert git_state(tmp_path / "bare.git") == (None, "")


def test_without_git_installed(project: git.Repo, tmp_path: Path) -> None:
    code = "from assay.record.provenance import git_state as state; import sys, pathlib; "
    code += "print(state(pathlib.Path(sys.argv[1])))"
    command = [sys.executable, "-c", code, str(project.working_dir)]
    environment = {name: value for name, value in os.environ.items() if name != "GIT_PYTHON_REFRESH"}
    done = subprocess.run(
        command, env={**environment, "PATH": str(tmp_path)}, capture_output=True, text=True, check=True
    )
    assert done.stdout == "(None, '')\n"


def test_a_repository_that_cannot_be_read_is_said(
    project: git.Repo, caplog: pytest.LogCaptureFixture
) -> None:
    commit = project.head.commit.hexsha
    (Path(project.git_dir) / "index").write_bytes(b"rubbish")
    state, patch = git_state(Path(project.working_dir))
    assert state is not None
    assert (state["commit"], state["patch_complete"], patch) == (commit, False, "")
    assert "could not be read" in caplog.text


def test_what_is_not_committed_is_named(project: git.Repo, tmp_path: Path) -> None:
    root = Path(project.working_dir)
    check_clean(root)
    (root / "photo.jpg").write_bytes(b"\xff")
    check_clean(root)
    (root / "a.py").write_text("x = 2\n")
    (root / "b c.py").write_text("")
    (root / "ü.py").write_text("y = 1\n")
    with pytest.raises(
        ConfigError, match=r"enforce_clean_git: these are not committed: a\.py, b c\.py, ü\.py\n"
    ):
        check_clean(root)
    for number in range(10):
        (root / f"n{number}.py").write_text("")
    with pytest.raises(ConfigError, match=r" and 5 more"):
        check_clean(root)
    (tmp_path / "plain").mkdir()
    with pytest.raises(ConfigError, match="lies in no git repository"):
        check_clean(tmp_path / "plain")


def test_files_of_a_patch(project: git.Repo) -> None:
    root = Path(project.working_dir)
    for name in ("b/with space.py", "b/a.py", "a b/a.py"):
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).write_text("1\n")
    (root / "a.py").unlink()
    assert changed_files(git_state(root)[1]) == ["a b/a.py", "a.py", "b/a.py", "b/with space.py"]


def test_the_lock_file_is_that_of_the_project(project: git.Repo, tmp_path: Path) -> None:
    root = Path(project.working_dir)
    (tmp_path / "uv.lock").write_text("somebody else's")
    (root / "inner").mkdir()
    assert lock_sha256(root / "inner") == ""
    (root / "uv.lock").write_text("a")
    (root / "requirements.txt").write_text("b")
    assert lock_sha256(root / "inner") == hashlib.sha256(b"a").hexdigest()


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("https://github.com/me/x.git", "https://github.com/me/x.git"),
        ("https://ghp_token@github.com/me/x.git", "https://github.com/me/x.git"),
        ("https://me:p@ss@example.org:8443/x.git", "https://example.org:8443/x.git"),
        ("https://example.org/x.git?access_token=abc#def", "https://example.org/x.git"),
        ("https://example.org/@team/x.git", "https://example.org/@team/x.git"),
        ("https://[::1]:80/x.git", "https://[::1]:80/x.git"),
        ("ssh://git:secret@example.org:22/x.git", "ssh://git@example.org:22/x.git"),
        ("git+ssh://git@example.org/x.git", "git+ssh://git@example.org/x.git"),
        ("git@example.org:me/x.git", "git@example.org:me/x.git"),
        ("me:secret@example.org:x.git", "example.org:x.git"),
        ("../x.git", "../x.git"),
        ("file:///srv/x.git", "file:///srv/x.git"),
    ],
)
def test_addresses_of_remotes(address: str, expected: str) -> None:
    assert without_credentials(address) == expected


def test_packages_are_those_that_are_imported() -> None:
    found = packages()
    assert all(found[name] == importlib.metadata.version(name) for name in ("torch", "lightning", "numpy"))
    assert list(found) == sorted(found, key=str.lower)
    found.clear()
    assert packages(), "what is handed out is the caller's own"


def test_the_machine() -> None:
    found = machine(["NVIDIA H100"], threads=3)
    assert found["memory_bytes"] == psutil.virtual_memory().total
    assert found["cores"] == os.cpu_count()
    assert (found["gpus"], found["threads"]) == (["NVIDIA H100"], 3)
    assert found["python"] == ".".join(map(str, sys.version_info[:3]))
    assert found["cpu"] == cpu_model() != ""
    json.dumps(found, allow_nan=False)


@pytest.mark.parametrize(
    ("text", "model", "flags"),
    [
        (
            "model name\t: A B\nflags\t\t: fpu avx2 fma avx avx512_bf16 ht\n\nmodel name\t: C\n",
            "A B",
            "avx avx2 avx512_bf16 fma",
        ),
        (
            "processor\t: 0\nFeatures\t: fp asimd sve\nCPU implementer\t: 0x41\nCPU part\t: 0xd0c\n",
            "aarch64 0x41 0xd0c",
            "asimd sve",
        ),
        (None, "aarch64", ""),
    ],
)
def test_the_processor_is_read_from_the_kernel_or_else_asked_of_the_platform(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str | None, model: str, flags: str
) -> None:
    if text is not None:
        (tmp_path / "cpuinfo").write_text(text)
    monkeypatch.setattr(provenance, "_CPUINFO", tmp_path / "cpuinfo")
    monkeypatch.setattr("platform.processor", lambda: "")
    monkeypatch.setattr("platform.machine", lambda: "aarch64")
    for cached in (provenance._cpuinfo, provenance.cpu_model):
        cached.cache_clear()
    try:
        found = machine([], 1)
    finally:
        for cached in (provenance._cpuinfo, provenance.cpu_model):
            cached.cache_clear()
    assert found["cpu"] == model
    assert found["cpu_flags"] == flags.split()


@pytest.mark.parametrize(
    ("files", "cores"),
    [
        ({}, 6),
        ({"cpu.max": "max 100000\n"}, 6),
        ({"cpu.max": "250000 100000\n"}, 3),
        ({"cpu.max": "50000 100000\n"}, 1),
        ({"cpu.max": "900000 100000\n"}, 6),
        ({"cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "100000\n"}, 6),
        ({"cpu/cpu.cfs_quota_us": "200000\n", "cpu/cpu.cfs_period_us": "100000\n"}, 2),
    ],
)
def test_usable_cores_are_those_that_affinity_and_quota_leave(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files: dict[str, str], cores: int
) -> None:
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.setattr(provenance, "_CGROUP", tmp_path)
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(6)))
    assert usable_cores() == cores


def test_of_the_environment_only_what_changes_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [
        name for name in os.environ if name.startswith(("TORCH_", "MKL_", "OMP_", "CUDA_", "PYTHONHASHSEED"))
    ]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("MKL_CBWR", "AVX2")
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    monkeypatch.setenv("TORCH_HUB_TOKEN", "hub-secret")
    monkeypatch.setenv("TORCH_HOME", "/models/hub-secret")
    monkeypatch.setenv("HOME", "/root")
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    monkeypatch.setenv("PYTORCH_TUNABLEOP_ENABLED", "1")
    found = numeric_environment()
    assert {name: found.get(name) for name in ("MKL_CBWR", "OMP_NUM_THREADS", "TORCH_HOME")} == {
        "MKL_CBWR": "AVX2",
        "OMP_NUM_THREADS": "2",
        "TORCH_HOME": "/models/***",
    }
    assert {"CUBLAS_WORKSPACE_CONFIG", "PYTORCH_TUNABLEOP_ENABLED"} <= set(found)
    assert not {"HOME", "TORCH_HUB_TOKEN", "PATH"} & set(found)
