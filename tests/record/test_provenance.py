"""Where a run came from, without secrets; commit and patch give the tree back; a repository runs nothing."""

from __future__ import annotations

import copy
import importlib.metadata
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import git
import pytest

from assay.errors import AssayError
from assay.record import provenance
from assay.record.provenance import (
    code_patch,
    differences_between,
    git_state,
    idle_cores,
    machine,
    numeric_environment,
    packages,
    segment_changes,
    segments,
    usable_cores,
)
from assay.record.run_record import RunRecord
from assay_lab.reproduce import checkout_code, differences_within, patched_files

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(autouse=True)
def settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The only settings that reach git."""
    for name in [name for name in os.environ if name.startswith("GIT_")]:
        monkeypatch.delenv(name)
    path = tmp_path / "gitconfig"
    path.write_text("[user]\n\tname = A\n\temail = a@example.org\n[protocol]\n\tallow = always\n")
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(path))
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path))
    return path


COMMITTED = {
    "a.py": b"x = 1\ny = 2\nz = 3\n",
    "gone.py": b"old\n",
    "latin.py": b"# caf\xe9\nold = 1\n",
    "crlf.py": b"a = 1\r\nb = 2\r\n",
    "weights.bin": bytes(range(256)),
    "folder/deep.yaml": b"lr: 0.1",
    ".gitignore": b"outputs/\nignored.py\n",
}
SOURCES = {
    "a.py": b"x = 1\ny = 20\nz = 3\n",
    "latin.py": b"# caf\xe9 cr\xe8me\nold = 2\n",
    "crlf.py": b"a = 1\r\nb = 3\r\n",
    "weights.bin": bytes(reversed(range(256))),
    "folder/deep.yaml": b"lr: 0.2",
    "empty.py": b"",
    "folder/spa ce ü.json": b'{"no newline": 1}',
    "bad.py": b"\xff\xfe\x00binary\x00",
    "-dash.cfg": b"[x]\n",
    ":(colon).sh": b"true\n",
}


def write(root: Path, files: dict[str, bytes]) -> None:
    for name, content in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(content)


def tree(root: Path) -> dict[str, bytes]:
    paths = [path for path in root.rglob("*") if path.is_file() and ".git" not in path.parts]
    return {path.relative_to(root).as_posix(): path.read_bytes() for path in paths}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    repository = git.Repo.init(tmp_path / "project", initial_branch="main")
    write(tmp_path / "project", COMMITTED)
    repository.git.add("--all")
    repository.git.commit("-m", "start")
    return tmp_path / "project"


def change(root: Path) -> dict[str, bytes]:
    (root / "gone.py").unlink()
    write(root, SOURCES)
    return tree(root)


def applied(root: Path, patch: str) -> dict[str, bytes]:
    """The patch on a fresh clone."""
    clone = git.Repo.clone_from(str(root), str(root.parent / "clone"), no_local=True)
    (root.parent / "code.patch").write_bytes(patch.encode("utf-8", "surrogateescape"))
    clone.git.apply(str(root.parent / "code.patch"))
    return tree(root.parent / "clone")


def test_patch_and_commit_give_the_tree_back_and_the_index_is_left_as_it_is(root: Path) -> None:
    assert code_patch(root) == ("", True)
    expected, repository = change(root), git.Repo(root)
    repository.git.add("a.py", "empty.py")
    before = repository.git.status("--porcelain"), (root / ".git/index").read_bytes()
    patch, complete = code_patch(root)
    assert complete
    assert (repository.git.status("--porcelain"), (root / ".git/index").read_bytes()) == before
    assert applied(root, patch) == expected


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("diff.noprefix", "true"),
        ("color.ui", "always"),
        ("diff.external", "false"),
        ("diff.relative", "true"),
    ],
)
def test_the_users_settings_change_nothing(root: Path, key: str, value: str) -> None:
    git.Repo(root).git.config("--global", key, value)
    expected = change(root)
    assert applied(root, code_patch(root)[0]) == expected


def test_before_the_first_commit(tmp_path: Path) -> None:
    repository = git.Repo.init(tmp_path / "young")
    write(tmp_path / "young", {"a.py": b"1\n", "b.py": b"2\n"})
    repository.git.add("a.py")
    state, patch = git_state(tmp_path / "young")
    assert state is not None
    assert (state["commit"], state["dirty"], state["patch_complete"]) == (None, True, True)
    (tmp_path / "code.patch").write_text(patch)
    checkout_code(tmp_path / "young", "", tmp_path / "code.patch", tmp_path / "code")
    assert tree(tmp_path / "code") == {"a.py": b"1\n", "b.py": b"2\n"}


def test_only_source_files_of_the_project(root: Path) -> None:
    names = ("outputs/a.py", "ignored.py", "data.csv", "runs/one/record.json", "runs/one/deep/er.yaml")
    write(root, dict.fromkeys((*names, "venv/pyvenv.cfg", "venv/lib/site.py"), b"{}"))
    git.Repo.init(root / "nested")
    write(root / "nested", {"theirs.py": b"1\n"})
    assert code_patch(root) == ("", True)


def test_what_does_not_fit_is_left_out_and_said(root: Path) -> None:
    write(root, {"new.py": b"1\n", "large.json": b"[" + b"1," * (1 << 20)})
    patch, complete = code_patch(root)
    assert not complete
    assert applied(root, patch) == COMMITTED | {"new.py": b"1\n"}
    assert code_patch(root, largest=50) == ("", False)


def test_secrets_are_struck_out_and_the_patch_says_so(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SERVICE_TOKEN", "tok-1234567890")
    token = "ghp_" + "a1B2" * 9
    key = "-----BEGIN RSA PRIVATE KEY-----\nMIIE\nabcd\n-----END RSA PRIVATE KEY-----"
    write(root, {"new.py": f'a = "tok-1234567890"\nb = "{token}"\nkey = """{key}"""\n'.encode()})
    patch, complete = code_patch(root)
    assert not complete
    assert not [secret for secret in ("tok-1234567890", token, "MIIE") if secret in patch]
    assert applied(root, patch)["new.py"].startswith(b'a = "***"\nb = "***"\n')


def test_untracked_credentials_are_left_out_and_the_patch_says_so(root: Path) -> None:
    code = {"tokens.py": b"x = 1\n", "author.json": b"{}\n", "url.py": b'"https://me:pw@example.org"\n'}
    write(root, code)
    assert code_patch(root)[1]
    names = ("credentials.json", "secrets.yaml", "prod.env.sh", "service-account.json", "conf/db_secret.toml")
    write(root, dict.fromkeys(names, b"0aB4dE6gH8jK1mN3\n"))
    patch, complete = code_patch(root)
    assert not complete
    assert "0aB4dE6gH8jK1mN3" not in patch
    assert code.items() <= applied(root, patch).items()


def test_a_clean_and_a_changed_project(root: Path) -> None:
    git.Repo(root).create_remote("origin", "https://me:hunter2@example.org/x.git")
    assert git_state(root) == (
        {
            "commit": git.Repo(root).head.commit.hexsha,
            "branch": "main",
            "dirty": False,
            "remote": "https://***@example.org/x.git",
            "patch_complete": True,
            "folder": ".",
        },
        "",
    )
    write(root, {"folder/new.py": b"y = 2\n"})
    state, patch = git_state(root / "folder")
    assert state is not None
    assert (state["dirty"], state["folder"]) == (True, "folder")
    assert "+y = 2" in patch


def test_where_there_is_no_repository_or_no_git(root: Path, tmp_path: Path) -> None:
    (tmp_path / "plain").mkdir()
    assert git_state(tmp_path / "plain") == (None, "")
    code = "import pathlib; from assay.record.provenance import git_state; "
    code += f"print(git_state(pathlib.Path({str(root)!r})))"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "(None, '')\n"


def test_a_repository_that_cannot_be_read_is_said(root: Path, caplog: pytest.LogCaptureFixture) -> None:
    commit = git.Repo(root).head.commit.hexsha
    (root / ".git/index").write_bytes(b"rubbish")
    state, patch = git_state(root)
    assert state is not None
    assert (state["commit"], state["patch_complete"], patch) == (commit, False, "")
    assert "could not be read" in caplog.text


def test_the_files_of_a_patch_are_named(root: Path) -> None:
    (root / "gone.py").unlink()
    write(root, dict.fromkeys(("b c.py", "a d/a.py", "ü.py"), b"1\n"))
    assert patched_files(git_state(root)[1]) == ["a d/a.py", "b c.py", "gone.py", "ü.py"]


def test_a_commit_and_its_patch_are_written_beside_the_checkout(root: Path, tmp_path: Path) -> None:
    expected = change(root)
    state, patch = git_state(root)
    assert state is not None
    (tmp_path / "code.patch").write_text(patch, "utf-8", "surrogateescape")
    write(root, {"a.py": b"x = 3\n"})
    git.Repo(root).git.commit("-a", "-m", "more")
    kept = tree(root)
    # Also within a repository, where `git apply` would leave files outside it alone.
    for folder in (tmp_path / "code", root / "outputs/code"):
        checkout_code(root, state["commit"], tmp_path / "code.patch", folder)
        assert tree(folder) == expected
    assert {name: data for name, data in tree(root).items() if "outputs" not in name} == kept


@pytest.mark.parametrize("commit", ["0" * 40, "HEAD", "--help"])
def test_a_commit_that_is_not_there(root: Path, tmp_path: Path, commit: str) -> None:
    with pytest.raises(AssayError, match="is not in"):
        checkout_code(root, commit, None, tmp_path / "code")
    assert not (tmp_path / "code").exists()


@pytest.mark.parametrize("way", ["name", "link"])
def test_a_patch_that_leaves_the_folder(root: Path, tmp_path: Path, way: str) -> None:
    name = "out/evil.py" if way == "link" else "../../evil.py"
    link = "diff --git a/out b/out\nnew file mode 120000\n--- /dev/null\n+++ b/out\n@@ -0,0 +1 @@\n"
    link += f"+{tmp_path}\n\\ No newline at end of file\n"
    file = f"diff --git a/{name} b/{name}\nnew file mode 100644\n--- /dev/null\n+++ b/{name}\n"
    text = link * (way == "link") + f"{file}@@ -0,0 +1 @@\n+x = 1\n"
    (tmp_path / "code.patch").write_text(text)
    commit = git.Repo(root).head.commit.hexsha
    with pytest.raises(AssayError, match=r"code\.patch does not apply"):
        checkout_code(root, commit, tmp_path / "code.patch", tmp_path / "deep/code")
    assert not list(tmp_path.rglob("evil.py"))


def run(folder: Path, *arguments: str, check: bool = True) -> str:
    command = ["git", *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=check).stdout.strip()


def script(path: Path, marker: Path, then: str = "cat") -> str:
    """A program that leaves a marker."""
    path.write_text(f"#!/bin/sh\ntouch '{marker}'\n{then}\n")
    path.chmod(0o755)
    return str(path)


@pytest.fixture
def markers(root: Path, tmp_path: Path) -> Path:
    """The folder of the markers of all that the repository's own settings run."""
    markers, programs = tmp_path / "markers", tmp_path / "programs"
    for folder in (markers, programs):
        folder.mkdir()
    run(root, "-c", "protocol.file.allow=always", "submodule", "add", "-q", str(root), "inner")
    run(root, "commit", "-m", "inner")

    def program(name: str, then: str = "cat") -> str:
        return script(programs / name, markers / name, then)

    (root / ".gitattributes").write_text("*.py filter=evil diff=evil\n*.yml filter=slow\n")
    (root / "settings.yml").write_text("lr: 0.1\n")
    (programs / "included").write_text(f'[filter "slow"]\n\tprocess = {program("process", "exit 1")}\n')
    for name, value in {
        "core.fsmonitor": program("fsmonitor", "exit 1"),
        "filter.evil.clean": program("clean"),
        "filter.evil.smudge": program("smudge"),
        "filter.evil.required": "true",
        "diff.evil.command": program("command", "exit 0"),
        "diff.evil.textconv": program("textconv"),
        "diff.external": program("external", "exit 0"),
        "include.path": str(programs / "included"),
    }.items():
        run(root, "config", name, value)
    script(root / ".git/hooks/post-index-change", markers / "hook", "exit 0")
    run(root / "inner", "config", "core.fsmonitor", program("inner", "exit 1"))
    for name in ("a.py", "inner/a.py"):
        (root / name).write_text("x = 2\n")
    return markers


def test_a_repository_runs_nothing_of_its_own(root: Path, markers: Path, tmp_path: Path) -> None:
    state, patch = git_state(root)
    assert state is not None
    assert state["patch_complete"]
    assert "+x = 2" in patch
    (tmp_path / "code.patch").write_text(patch)
    checkout_code(root, state["commit"], tmp_path / "code.patch", tmp_path / "code")
    assert (tmp_path / "code/a.py").read_text() == "x = 2\n"
    assert not list(markers.iterdir())
    run(root, "status", check=False)
    run(root, "diff", "HEAD", check=False)
    run(root, "add", "--intent-to-add", "settings.yml", check=False)
    run(root, "checkout-index", "--force", "--all", "--prefix=../out/", check=False)
    fired = {path.name for path in markers.iterdir()}
    assert {"fsmonitor", "clean", "smudge", "process", "external", "hook", "inner"} <= fired | {"command"}


def test_a_partial_clone_fetches_nothing(root: Path, tmp_path: Path) -> None:
    blob = run(root, "rev-parse", "HEAD:a.py")
    (root / ".git/objects" / blob[:2] / blob[2:]).unlink()
    for name, value in {
        "core.repositoryFormatVersion": "1",
        "extensions.partialClone": "origin",
        "remote.origin.promisor": "true",
        "remote.origin.url": f"ext::{script(tmp_path / 'remote', tmp_path / 'fetched', 'exit 1')}",
        "protocol.ext.allow": "always",
    }.items():
        run(root, "config", name, value)
    (root / "a.py").write_text("x = 2\n")
    git_state(root)
    assert not (tmp_path / "fetched").exists()
    run(root, "diff", "HEAD", check=False)
    assert (tmp_path / "fetched").exists(), "plain git would have asked the remote"


def test_filters_of_the_users_own_settings_run(root: Path, settings: Path) -> None:
    settings.write_text(settings.read_text() + '[filter "up"]\n\tclean = tr a-z A-Z\n')
    (root / ".gitattributes").write_text("*.py filter=up\n")
    run(root, "config", "filter.up.clean", "false")  # the repository may not replace it
    (root / "a.py").write_text("w = 2\n")
    assert "+W = 2" in git_state(root)[1]


def test_packages_and_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert packages()["torch"] == importlib.metadata.version("torch")
    text = "processor\t: 0\nCPU implementer\t: 0x41\nCPU part\t: 0xd0c\n"
    (tmp_path / "cpuinfo").write_text(text)
    monkeypatch.setattr(provenance, "_CPUINFO", tmp_path / "cpuinfo")
    monkeypatch.setattr("platform.processor", lambda: "aarch64")
    provenance.cpu_model.cache_clear()
    try:
        found = machine(["NVIDIA H100"], 3)
    finally:
        provenance.cpu_model.cache_clear()
    assert (found["cpu"], found["gpus"], found["threads"]) == ("aarch64 0x41 0xd0c", ["NVIDIA H100"], 3)


@pytest.mark.parametrize(("quotas", "cores"), [([], 6), ([2.5], 3), ([9.0], 6), ([4.0, 1.5, 8.0], 2)])
def test_usable_cores_are_those_that_affinity_and_quotas_leave(
    monkeypatch: pytest.MonkeyPatch, quotas: list[float], cores: int
) -> None:
    monkeypatch.setattr(provenance, "cpu_quotas", lambda: quotas)
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(6)))
    assert usable_cores() == cores


@pytest.mark.parametrize(
    ("busy", "idle"),
    [([100, 3, 1, 4], 3), ([100, 100, 2, 3], 2), ([60, 60, 30, 0], 2), ([99, 100, 100, 100], 0)],
)
def test_idle_cores_are_those_of_this_process_that_nothing_uses(
    busy: list[float], idle: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("psutil.cpu_percent", lambda *_, **__: [0.0, 0.0, *busy, 50.0])
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {2, 3, 4, 5})
    assert idle_cores() == idle


def test_of_the_environment_only_what_changes_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    given = {"MKL_CBWR": "AVX2", "OMP_NUM_THREADS": "2", "TORCH_HUB_TOKEN": "hub-secret", "HOME": "/root"}
    for name, value in {**given, "TORCH_HOME": "/models/hub-secret"}.items():
        monkeypatch.setenv(name, value)
    found = numeric_environment()
    expected = {"MKL_CBWR": "AVX2", "OMP_NUM_THREADS": "2", "TORCH_HOME": "/models/***"}
    assert expected.items() <= found.items()
    assert not {"HOME", "TORCH_HUB_TOKEN", "PATH"} & set(found)


HERE: dict[str, Any] = {
    "git": {"commit": "a" * 40},
    "patch_sha256": "",
    "packages": {"torch": "2.14", "six": "1", "numpy": "2"},
    "machine": {"cpu": "one", "threads": 4, "gpus": [], "environment": {"OMP_NUM_THREADS": "4"}},
}


def changed(**parts: Any) -> dict[str, Any]:
    other = copy.deepcopy(HERE)
    for name, value in parts.items():
        other[name] = {**other[name], **value} if isinstance(value, dict) else value
    return other


def record(*entries: dict[str, Any]) -> RunRecord:
    return RunRecord("r", "n", "finished", "2026", 1, "f", "c", **copy.deepcopy(HERE), resumed=list(entries))


def test_an_entry_says_what_changed_and_the_whole_comes_back() -> None:
    now = changed(packages={"torch": "2.15", "rich": "1"}, machine={"cpu": "other"})
    del now["packages"]["six"]
    entry = {**segment_changes(now, HERE), "from_step": 7}
    assert entry["packages"] == {"rich": "1", "six": "", "torch": "2.15"}
    third = changed(packages=now["packages"] | {"numpy": "3"})
    del third["packages"]["six"]
    several = record(entry, {"from_step": 3}, segment_changes(third, now))
    assert segments(several) == [HERE, now, third]
    assert "the run was resumed at step 7 with different CPU: one then, other now" in differences_within(
        several
    )


@pytest.mark.parametrize(
    ("now", "said"),
    [
        ({"git": {"commit": "b" * 40}}, ["code: commit aaaaaaaaaaaa then, commit bbbbbbbbbbbb now"]),
        (
            {"patch_sha256": "c" * 64},
            ["code: commit aaaaaaaaaaaa then, commit aaaaaaaaaaaa with changes (cccccccc) now"],
        ),
        ({"git": None}, ["code: commit aaaaaaaaaaaa then, not in a repository now"]),
        (
            {
                "machine": {
                    "gpus": ["H"],
                    "threads": 8,
                    "environment": {"OMP_NUM_THREADS": "8", "CUBLAS": "1"},
                },
                "packages": {"torch": "2.15"},
            },
            [
                "device: none then, ['H'] now",
                "threads: 4 then, 8 now",
                "packages: torch 2.14 then, 2.15 now",
                "environment: CUBLAS= then, 1 now",
            ],
        ),
    ],
)
def test_other_code_and_other_machines(now: dict[str, Any], said: list[str]) -> None:
    assert differences_between(HERE, changed(**now)) == said
