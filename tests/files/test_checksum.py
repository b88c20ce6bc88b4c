"""The sum beside a checkpoint: as `sha256sum` writes it, and read only when all of it is."""

import hashlib
import json
from pathlib import Path

import pytest
import yaml

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
