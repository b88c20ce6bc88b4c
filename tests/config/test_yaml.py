"""YAML is read as OmegaConf reads it, and a pipe is not waited for."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st
from omegaconf import DictConfig, OmegaConf

from assay.config.tree import join_key, split_key, walk
from assay.config.yaml_file import display_path, load_mapping
from assay.errors import AssayError
from assay.paths import CONF_DIR
from assay.run.saved_config import read_config
from assay_explain.origin import yaml_entries

if TYPE_CHECKING:
    from pathlib import Path


def test_every_key_and_value_as_omegaconf_reads_them() -> None:
    for path in sorted(CONF_DIR.rglob("*.yaml")):
        theirs = OmegaConf.load(path)
        assert isinstance(theirs, DictConfig)
        theirs.pop("defaults", None)
        expected = {entry.key: entry for entry in walk(theirs)}
        ours = yaml_entries(path)
        assert [join_key(parts) for parts, *_ in ours] == list(expected), path
        lines = path.read_text(encoding="utf-8").splitlines()
        for parts, kind, text, line in ours:
            entry = expected[join_key(parts)]
            assert parts[-1].isdigit() or f"{parts[-1]}:" in lines[line - 1]
            if kind == "value":
                assert not entry.is_container
                assert next(walk(OmegaConf.create(f"x: {text}"))).node._value() == entry.node._value()


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("x: 1.0e-8 # small", "1.0e-8"),
        ("x:", "null"),
        ("x: ''", '""'),
        ("x: 'it''s'", '"it\'s"'),
        ('x: "a\\tb"', '"a\\tb"'),
        ("x: |\n  two\n  lines", '"two\\nlines"'),
        ("x:\n- 1\n- {a: b}", "[1, {a: b}]"),
    ],
)
def test_a_value_in_one_line(line: str, text: str, tmp_path: Path) -> None:
    path = tmp_path / "x.yaml"
    path.write_text(line, encoding="utf-8")
    assert yaml_entries(path)[0][2] == text


PARTS = st.lists(st.from_regex(r"[a-z_][a-z0-9_]{0,5}|[0-9]{1,2}", fullmatch=True), min_size=1, max_size=6)


@given(PARTS)
def test_a_key_comes_back(parts: list[str]) -> None:
    assert split_key(join_key(parts)) == tuple(parts)


def test_a_path_as_a_user_knows_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert display_path(tmp_path / "conf" / "a.yaml") == "conf/a.yaml"
    assert display_path(CONF_DIR / "optimizer" / "adamw.yaml") == "conf/optimizer/adamw.yaml"
    assert display_path(tmp_path.parent / "a.yaml") == str(tmp_path.parent / "a.yaml")


def test_a_run_directory_whose_config_is_a_pipe_or_nested_without_end(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text("a: " + "[" * 5_000 + "]" * 5_000)
    with pytest.raises(AssayError, match=r"config\.yaml"):
        read_config(tmp_path, ())
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(AssayError, match=r"config\.yaml"):
        read_config(tmp_path, ())


def test_many_values_are_read(tmp_path: Path) -> None:
    (tmp_path / "x.yaml").write_text(f"a: {list(range(20_000))}\nb: '*'\n")
    assert len(load_mapping(tmp_path / "x.yaml").a) == 20_000
