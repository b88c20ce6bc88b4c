"""The patch and the commit give the tree back, byte for byte."""

import os
from collections.abc import Callable
from pathlib import Path

import git
import pytest

from assay.record.code_patch import code_patch

pytestmark = pytest.mark.usefixtures("own_git")

COMMITTED = {
    "model.py": b"x = 1\ny = 2\nz = 3\n",
    "gone.py": b"old\n",
    "latin.py": b"# caf\xe9\nold = 1\n",
    "crlf.py": b"a = 1\r\nb = 2\r\n",
    "weights.bin": bytes(range(256)),
    "folder/deep.yaml": b"lr: 0.1",
    "unchanged.py": b"same\n",
    ".gitignore": b"outputs/\nignored.py\n",
}
SOURCES = {
    "model.py": b"x = 1\ny = 20\nz = 3\n",
    "latin.py": b"# caf\xe9 cr\xe8me\nold = 2\n",
    "crlf.py": b"a = 1\r\nb = 3\r\n",
    "weights.bin": bytes(reversed(range(256))),
    "folder/deep.yaml": b"lr: 0.2",
    "new.py": b"new\n",
    "empty.py": b"",
    "folder/spa ce ü.json": b'{"no newline": 1}',
    "a/b/c.toml": b"[a]\n",
    "bad.py": b"\xff\xfe\x00binary\x00",
    "-dash.cfg": b"[x]\n",
    ":(colon).sh": b"true\n",
}


def write(root: Path, files: dict[str, bytes]) -> None:
    for name, content in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(content)


def tree(root: Path) -> dict[str, bytes]:
    return {
        p.relative_to(root).as_posix(): p.read_bytes()
        for p in root.rglob("*")
        if p.is_file() and ".git" not in p.parts
    }


@pytest.fixture
def project(tmp_path: Path) -> git.Repo:
    root = tmp_path / "project"
    root.mkdir()
    repository = git.Repo.init(root)
    write(root, COMMITTED)
    repository.git.add("--all")
    repository.git.commit("-m", "start")
    return repository


def change(project: git.Repo) -> Path:
    root = Path(project.working_dir)
    (root / "gone.py").unlink()
    write(root, SOURCES)
    return root


def applied(project: git.Repo, patch: str, folder: Path) -> dict[str, bytes]:
    """The patch on a fresh clone."""
    clone = git.Repo.clone_from(str(project.working_dir), str(folder), no_local=True)
    (folder.parent / "code.patch").write_bytes(patch.encode("utf-8", "surrogateescape"))
    clone.git.apply(str(folder.parent / "code.patch"))
    return tree(folder)


def test_patch_and_commit_give_the_tree_back(project: git.Repo, tmp_path: Path) -> None:
    root = change(project)
    patch, complete = code_patch(project)
    assert complete
    assert applied(project, patch, tmp_path / "clone") == tree(root)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("diff.noprefix", "true"),
        ("diff.mnemonicPrefix", "true"),
        ("color.ui", "always"),
        ("diff.external", "false"),
        ("diff.renames", "copies"),
        ("core.quotePath", "false"),
        ("diff.relative", "true"),
        ("diff.context", "1"),
    ],
)
def test_the_users_settings_change_nothing(project: git.Repo, tmp_path: Path, key: str, value: str) -> None:
    (tmp_path / ".gitconfig").touch()
    project.git.config("--global", key, value)
    root = change(project)
    patch, _ = code_patch(project)
    assert applied(project, patch, tmp_path / "clone") == tree(root)


def test_a_clean_tree_has_an_empty_patch(project: git.Repo) -> None:
    assert code_patch(project) == ("", True)


def test_staged_changes_and_the_index_itself_are_left_as_they_are(project: git.Repo, tmp_path: Path) -> None:
    root = change(project)
    project.git.add("model.py", "new.py")
    (root / "model.py").write_bytes(b"x = 5\n")
    before = (
        project.git.status("--porcelain"),
        (root / ".git" / "index").read_bytes(),
        sorted((root / ".git").rglob("*")),
    )
    patch, _ = code_patch(project)
    after = (
        project.git.status("--porcelain"),
        (root / ".git" / "index").read_bytes(),
        sorted((root / ".git").rglob("*")),
    )
    assert before == after
    assert applied(project, patch, tmp_path / "clone") == tree(root)


def test_from_a_folder_within_and_in_a_worktree(project: git.Repo, tmp_path: Path) -> None:
    root = change(project)
    within = git.Repo(root / "folder", search_parent_directories=True)
    assert code_patch(within) == code_patch(project)
    project.git.worktree("add", str(tmp_path / "other"), "HEAD")
    write(tmp_path / "other", {"only_here.py": b"1\n"})
    patch, _ = code_patch(git.Repo(tmp_path / "other"))
    assert "only_here.py" in patch
    assert "model.py" not in patch


def test_before_the_first_commit(tmp_path: Path) -> None:
    repository = git.Repo.init(tmp_path / "young")
    write(tmp_path / "young", {"a.py": b"1\n", "b.py": b"2\n"})
    repository.git.add("a.py")
    patch, complete = code_patch(repository)
    assert complete
    other = git.Repo.init(tmp_path / "other")
    (tmp_path / "code.patch").write_text(patch)
    other.git.apply(str(tmp_path / "code.patch"))
    assert tree(tmp_path / "other") == {"a.py": b"1\n", "b.py": b"2\n"}


def test_only_source_files_of_the_project(project: git.Repo) -> None:
    root = Path(project.working_dir)
    no_source = {
        "outputs/a.py": b"ignored by git\n",
        "ignored.py": b"1\n",
        "data.csv": b"1\n",
        "runs/one/record.json": b"{}",
        "runs/one/config.yaml": b"a: 1\n",
        "runs/one/deep/er.yaml": b"a: 1\n",
        "venv/pyvenv.cfg": b"home = /usr\n",
        "venv/lib/site.py": b"1\n",
    }
    write(root, no_source)
    git.Repo.init(root / "nested")
    write(root / "nested", {"theirs.py": b"1\n"})
    assert code_patch(project) == ("", True)


def large_untracked(root: Path) -> None:
    write(root, {"new.py": b"1\n", "large.json": b"[" + b"1," * (1 << 20)})


def large_tracked(root: Path) -> None:
    write(root, {"new.py": b"1\n", "weights.bin": os.urandom(60_000)})


def many(root: Path) -> None:
    write(
        root, {f"part{index}.py": f"x = {'1' * 9_000}\n".encode() for index in range(9)} | {"new.py": b"1\n"}
    )


@pytest.mark.parametrize("make", [large_untracked, large_tracked, many])
def test_what_does_not_fit_is_left_out_whole_and_said(
    project: git.Repo, tmp_path: Path, make: Callable[[Path], None]
) -> None:
    root = Path(project.working_dir)
    make(root)
    patch, complete = code_patch(project, largest=50_000)
    assert not complete
    assert len(patch) <= 50_000
    got = applied(project, patch, tmp_path / "clone")
    assert got["new.py"] == b"1\n"
    expected = tree(root)
    assert set(got) < set(expected) or any(got[name] != expected[name] for name in got)
    assert all(content in (expected[name], COMMITTED.get(name)) for name, content in got.items())


def test_secrets_are_struck_out_and_the_patch_says_so(
    project: git.Repo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SERVICE_TOKEN", "tok-1234567890")
    write(
        Path(project.working_dir),
        {"new.py": b'token = "tok-1234567890"\n', "model.py": b"x = 1\ny = 3\nz = 3\n"},
    )
    patch, complete = code_patch(project)
    assert not complete
    assert "tok-1234567890" not in patch
    assert applied(project, patch, tmp_path / "clone")["new.py"] == b'token = "***"\n'


CREDENTIALS = (
    "credentials.json",
    "secrets.yaml",
    "prod.env.sh",
    "service-account.json",
    "conf/db_secret.toml",
)


def test_untracked_credentials_are_left_out_and_the_patch_says_so(project: git.Repo, tmp_path: Path) -> None:
    code = {
        "tokens.py": b"x = 1\n",
        "environment.yaml": b"a: 1\n",
        "author.json": b"{}\n",
        "secretary.py": b"",
    }
    write(Path(project.working_dir), code)
    assert code_patch(project)[1]
    write(Path(project.working_dir), dict.fromkeys(CREDENTIALS, b"0aB4dE6gH8jK1mN3\n"))
    patch, complete = code_patch(project)
    assert not complete
    assert "0aB4dE6gH8jK1mN3" not in patch
    got = applied(project, patch, tmp_path / "clone")
    assert code.items() <= got.items()


def test_tokens_that_say_what_they_are_are_struck_out(project: git.Repo, tmp_path: Path) -> None:
    token = "ghp_" + "a1B2" * 9
    key = "-----BEGIN RSA PRIVATE KEY-----\nMIIE\nabcd\n-----END RSA PRIVATE KEY-----"
    write(Path(project.working_dir), {"new.py": f'token = "{token}"\nkey = """{key}"""\n'.encode()})
    patch, complete = code_patch(project)
    assert not complete
    assert token not in patch
    assert "MIIE" not in patch
    assert b'token = "***"' in applied(project, patch, tmp_path / "clone")["new.py"]


def test_addresses_in_code_are_code(project: git.Repo, tmp_path: Path) -> None:
    root = Path(project.working_dir)
    write(root, {"new.py": b'url = "https://me:pw@example.org"\n'})
    patch, complete = code_patch(project)
    assert complete
    assert applied(project, patch, tmp_path / "clone") == tree(root)


def test_links_stay_links(project: git.Repo, tmp_path: Path) -> None:
    (Path(project.working_dir) / "link.py").symlink_to("model.py")
    patch, _ = code_patch(project)
    applied(project, patch, tmp_path / "clone")
    assert (tmp_path / "clone" / "link.py").readlink() == Path("model.py")


def test_a_change_in_the_second_of_a_commit(project: git.Repo) -> None:
    """Of equal length, it is seen by the times of file and index alone: a copied index keeps its own."""
    file, index = Path(project.working_dir) / "model.py", Path(project.git_dir) / "index"
    project.git.config("core.trustctime", "false")
    file.write_text("x = 1\n")
    os.utime(file, ns=(1_700_000_000_000_000_000,) * 2)
    project.git.add("--all")
    project.git.commit("--allow-empty", "-m", "more")
    file.write_text("x = 2\n")
    for path in (file, index):
        os.utime(path, ns=(1_700_000_000_000_000_000,) * 2)
    assert "+x = 2" in code_patch(project)[0]
