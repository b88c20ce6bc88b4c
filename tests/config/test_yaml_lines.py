from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import yaml
from omegaconf import DictConfig, OmegaConf

from assay.config.source_location import defaults, joined, shortened, written
from assay.config.tree import walk
from assay.paths import CONF_DIR

if TYPE_CHECKING:
    from pathlib import Path

FILES = sorted(CONF_DIR.rglob("*.yaml"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.relative_to(CONF_DIR).as_posix())
def test_every_key_and_value_as_omegaconf_reads_them(path: Path) -> None:
    theirs = OmegaConf.load(path)
    assert isinstance(theirs, DictConfig)
    theirs.pop("defaults", None)
    expected = {entry.key: entry for entry in walk(theirs)}
    ours = written(path)
    assert [joined(one.key) for one in ours] == list(expected)
    lines = path.read_text(encoding="utf-8").splitlines()
    for one in ours:
        entry = expected[joined(one.key)]
        if not one.key[-1].isdigit():
            assert f"{one.key[-1]}:" in lines[one.line - 1]
        if one.kind == "value":
            assert not entry.is_container
            assert next(walk(OmegaConf.create(f"x: {one.text}"))).node._value() == entry.node._value()


def test_defaults_list_with_lines() -> None:
    found = defaults(CONF_DIR / "data" / "diabetes.yaml")
    assert found[0] == ("_loading", 3)
    assert ("override /loss@_global_.loss: mse", 6) in found


def test_anchors_and_merged_mappings(tmp_path: Path) -> None:
    path = tmp_path / "x.yaml"
    path.write_text("a: &a\n  x: 1\n  y: 2\nb:\n  <<: *a\n  x: 3\n", encoding="utf-8")
    last = {joined(one.key): (one.text, one.line) for one in written(path)}
    assert (last["b.x"], last["b.y"]) == (("3", 6), ("2", 3))


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("x: 1.0e-8 # small", "1.0e-8"),
        ("x:", "null"),
        ("x: ''", "''"),
        ("x: 'it''s'", "'it''s'"),
        ('x: "a\\tb"', '"a\\tb"'),
        ("x: |\n  two\n  lines", '"two\\nlines"'),
        ("x:\n- 1\n- {a: b}", "[1, {a: b}]"),
    ],
)
def test_a_value_in_one_line(line: str, text: str, tmp_path: Path) -> None:
    path = tmp_path / "x.yaml"
    path.write_text(line, encoding="utf-8")
    assert written(path)[0].text == text


def test_package_comes_first_even_of_an_empty_file(tmp_path: Path) -> None:
    path = tmp_path / "x.yaml"
    path.write_text("# Nothing.\n", encoding="utf-8")
    assert [one.key for one in written(path, ("scheduler",))] == [("scheduler",)]
    assert not written(path)


def test_broken_yaml(tmp_path: Path) -> None:
    path = tmp_path / "x.yaml"
    path.write_text("a: b: c", encoding="utf-8")
    with pytest.raises(yaml.YAMLError):
        written(path)


def test_shortened() -> None:
    assert shortened("x" * 80) == "x" * 80
    assert len(shortened("x" * 81)) == 80
