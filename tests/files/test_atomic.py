"""A file is there whole, old or new, whatever fails while it is written."""

from __future__ import annotations

import hashlib
import json
import os
import stat
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from assay.files.atomic import (
    open_atomic,
    remove_unfinished,
    temporary_folder,
    write_bytes,
)
from assay.files.checksum import (
    content_sums,
    describe_damage,
    is_json_intact,
    is_yaml_intact,
    read_sums,
    seal_json,
    seal_yaml,
    sha256,
    write_sums,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_permissions_are_those_of_an_ordinary_file(tmp_path: Path) -> None:
    write_bytes(tmp_path / "ours", b"")
    (tmp_path / "plain").touch()
    ours, plain = ((tmp_path / name).stat().st_mode for name in ("ours", "plain"))
    assert stat.S_IMODE(ours) == stat.S_IMODE(plain)


@pytest.mark.skipif(os.name == "nt", reason="Windows has no pipes with a name")
def test_what_is_not_a_file_is_not_replaced(tmp_path: Path) -> None:
    """A pipe stands for a device here: root would replace /dev/null."""
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to(tmp_path / "pipe")
    for name in ("pipe", "link"):
        with pytest.raises(OSError, match="is not a regular file"):
            write_bytes(tmp_path / name, b"new")
    assert (tmp_path / "pipe").is_fifo()
    assert names(tmp_path) == ["link", "pipe"]


def failing(call: Callable[..., Any], at: int) -> Callable[..., Any]:
    count = iter(range(1, 1000))

    def wrapped(*args: Any, **kwargs: Any) -> Any:
        if next(count) == at:
            raise OSError(28, "No space left on device")
        return call(*args, **kwargs)

    return wrapped


@pytest.mark.parametrize(
    ("name", "at", "after"), [("fsync", 1, b"old"), ("replace", 1, b"old"), ("fsync", 2, b"new")]
)
def test_a_failure_leaves_one_whole_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, at: int, after: bytes
) -> None:
    path = tmp_path / "x"
    path.write_bytes(b"old")
    monkeypatch.setattr(os, name, failing(getattr(os, name), at))
    with pytest.raises(OSError, match="No space"):
        write_bytes(path, b"new")
    monkeypatch.undo()
    assert path.read_bytes() == after
    assert names(tmp_path) == ["x"]


def test_an_exception_or_a_signal_while_writing_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(b"old")

    def write_half() -> None:
        with open_atomic(path) as file:
            file.write(b"half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_half()
    assert path.read_bytes() == b"old"
    assert names(tmp_path) == ["x"]


def test_what_was_left_unfinished_goes_and_nothing_else(tmp_path: Path) -> None:
    folder = tmp_path / "checkpoints"
    (folder / ".a.0123456789ab.tmp").mkdir(parents=True)
    left = [folder / name for name in (".a.0123456789ab.tmp", ".last.ckpt.0123456789ab.tmp")]
    others = [folder / name for name in (".last.ckpt.tmp", "a.0123456789ab.tmp", ".hidden", "last.ckpt")]
    for path in (left[0] / "x", left[1], *others):
        path.touch()
    (folder / ".b.0123456789ab.tmp").symlink_to(others[-1])
    assert remove_unfinished(tmp_path / "none") == []
    assert remove_unfinished(folder) == []
    os.utime(left[1], (0, 0))
    assert remove_unfinished(folder, "last.ckpt") == [left[1]]
    assert remove_unfinished(folder, older_than=0) == [left[0]]
    assert not any(path.exists() for path in left)
    assert all(path.exists() for path in others)
    assert len(list(folder.iterdir())) == len(others) + 1


def test_what_another_process_may_be_writing_stays(tmp_path: Path) -> None:
    with open_atomic(tmp_path / "x") as file, temporary_folder(tmp_path / "x"):
        file.write(b"half")
        assert len(names(tmp_path)) == 2
        write_bytes(tmp_path / "x", b"theirs")
        assert remove_unfinished(tmp_path) == []
    assert (tmp_path / "x").read_bytes() == b"half"


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such locks")
def test_a_folder_in_use_stays_however_old_it_is(tmp_path: Path) -> None:
    """The time of a folder does not change while files in it grow: of a reproduction that takes days."""
    with temporary_folder(tmp_path / "x") as folder:
        (folder / "weights").touch()
        os.utime(folder, (0, 0))
        assert remove_unfinished(tmp_path) == []
        with temporary_folder(tmp_path / "x"):
            assert len(names(tmp_path)) == 2
        assert (folder / "weights").exists()
    assert names(tmp_path) == []


def test_a_write_that_takes_a_part_is_gone_on_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    genuine = os.write
    monkeypatch.setattr(os, "write", lambda descriptor, data: genuine(descriptor, data[:3]))
    write_bytes(tmp_path / "a", b"0123456789")
    assert (tmp_path / "a").read_bytes() == b"0123456789"


A, B = (hashlib.sha256(text).hexdigest() for text in (b"a", b"b"))


def test_what_is_written_is_read(tmp_path: Path) -> None:
    path = tmp_path / "a [b].ckpt"
    write_sums(path, [A, B])
    assert (tmp_path / "a [b].ckpt.sha256").read_text() == f"{A}  a [b].ckpt\n{B}  a [b].ckpt\n"
    assert read_sums(path) == [A, B]
    assert sha256(path) == A


@pytest.mark.parametrize(
    "text",
    ["", A, f"{A}  other\n", f"{A}  x\n\n", f"{A} x\n", f"{A.upper()}  x\n", f"{A}  x", f"# c\n{A}  x\n"],
)
def test_anything_else_is_damage(tmp_path: Path, text: str) -> None:
    path = tmp_path / "x"
    path.write_bytes(b"a")
    (tmp_path / "x.sha256").write_text(text)
    assert read_sums(path) == []
    assert content_sums(path) == [], "not made right by taking the sum anew"
    assert describe_damage(path) == "cannot be verified: x.sha256 is damaged"


@pytest.mark.parametrize(
    ("content", "sums", "reason"), [(b"a", [A], ""), (b"b", [A, B], ""), (b"c", [A], "is damaged")]
)
def test_whether_it_is_whole(tmp_path: Path, content: bytes, sums: list[str], reason: str) -> None:
    path = tmp_path / "x"
    path.write_bytes(content)
    write_sums(path, sums)
    found = describe_damage(path)
    assert found.startswith(reason)
    assert bool(found) == bool(reason)


YAML, JSON = seal_yaml("a: ü\nb: [1, 2]\n"), seal_json('{\n  "a": "ü"\n}')


def test_it_reads_as_before() -> None:
    assert yaml.safe_load(YAML) == {"a": "ü", "b": [1, 2]}
    assert json.loads(JSON).keys() == {"a", "sha256"}
    assert is_yaml_intact(YAML.encode())
    assert is_json_intact(JSON.encode())


def test_any_flip_and_any_cut_shows() -> None:
    for text, is_whole in ((YAML, is_yaml_intact), (JSON, is_json_intact)):
        content = text.encode()
        for at in range(len(content)):
            assert not is_whole(content[:at])
            for bit in range(8):
                assert not is_whole(content[:at] + bytes([content[at] ^ 1 << bit]) + content[at + 1 :])
        assert not is_whole(content + b"\n")


@pytest.mark.parametrize("text", [b"", b"a: 1\n"])
def test_no_seal(text: bytes) -> None:
    assert is_yaml_intact(text) is None
    assert is_json_intact(text) is False
