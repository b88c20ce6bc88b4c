"""Text of a config is read back as what it was, and looks as OmegaConf's own."""

from __future__ import annotations

import copy
import os
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from omegaconf import DictConfig, OmegaConf

from assay.compose.compose import compose, job_config
from assay.config.serialize import (
    REPETITIONS,
    fingerprint,
    to_yaml,
)
from assay.config.tree import join_key, split_key, walk
from assay.config.yaml_file import display_path, load_mapping
from assay.errors import AssayError
from assay.paths import CONF_DIR
from assay.run.saved_config import read_config
from assay_explain.origin import yaml_entries

if TYPE_CHECKING:
    from pathlib import Path


WORDS = st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"]), max_size=20)
TRICKY = st.sampled_from(
    ["1e3", "1_000", "yes", "null", "~", "0x1f", "1.", ".5", "on", "a: b", "#", "- x", "é"]
)
NUMBERS = st.integers() | st.floats(allow_nan=False)
VALUES = st.none() | st.booleans() | NUMBERS | TRICKY | WORDS.filter(lambda text: "${" not in text)
TREES = st.dictionaries(
    WORDS.filter(bool),
    st.recursive(
        VALUES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=3)
    ),
    max_size=4,
)


@given(TREES)
def test_yaml_is_read_back_as_it_was(tree: dict[str, object]) -> None:
    assert OmegaConf.to_container(OmegaConf.create(to_yaml(tree))) == tree


def test_yaml_looks_as_omegaconf_writes_it() -> None:
    tree = {
        "lr": 1e-05,
        "tags": ["a", "1"],
        "empty": [],
        "none": None,
        "long": "word " * 40,
        "deep": {"x": {}},
    }
    assert to_yaml(tree) == OmegaConf.to_yaml(OmegaConf.create(tree))


def job(*overrides: str) -> DictConfig:
    return job_config(compose(overrides))


@pytest.mark.parametrize("same", ["name=other", "tags=[a]", "hydra.run.dir=elsewhere"])
def test_does_not_change_with_what_leaves_the_outcome_alone(same: str) -> None:
    assert fingerprint(job(same)) == fingerprint(job())


@pytest.mark.parametrize("other", ["seed=1", "optimizer.lr=0.1", "model=mlp", "callbacks=[default,ema]"])
def test_changes_with_what_decides_the_outcome(other: str) -> None:
    assert fingerprint(job(other)) != fingerprint(job())


def test_repetitions_are_of_one_configuration() -> None:
    one, other = job("data.split.folds=3", "+fold=0"), job("data.split.folds=3", "+fold=1", "seed=7")
    assert fingerprint(one, REPETITIONS) == fingerprint(other, REPETITIONS) != fingerprint(job(), REPETITIONS)


def test_every_place_and_what_it_is() -> None:
    config = OmegaConf.create({"a": {"b": [1, {"c": "???"}]}, "d": "${a.b}", "e": None, "f": {}})
    entries = {entry.key: entry for entry in walk(config)}
    assert list(entries) == ["a", "a.b", "a.b[0]", "a.b[1]", "a.b[1].c", "d", "e", "f"]
    assert [key for key, entry in entries.items() if entry.is_container] == ["a", "a.b", "a.b[1]", "f"]
    assert [key for key, entry in entries.items() if entry.is_missing] == ["a.b[1].c"]
    assert [key for key, entry in entries.items() if entry.is_interpolation] == ["d"]


@dataclass
class Typed:
    """Of every kind of node."""

    number: int = 3
    names: list[str] = field(default_factory=lambda: ["a", "b"])
    parts: dict[str, Any] = field(default_factory=lambda: {"x": 1, "y": [None, "${number}"]})


def test_a_copy_of_a_config_is_the_same_and_shares_nothing() -> None:
    config = cast("DictConfig", OmegaConf.structured(Typed))
    OmegaConf.set_readonly(config.parts, True)
    OmegaConf.set_struct(config, True)
    metadata = config._metadata
    metadata.resolver_cache["short_id"]["${short_id:}"] = "abc123"
    twin = copy.deepcopy(config)
    assert twin == config
    for one, other in ((config, twin), (config.parts, twin.parts), (config.names, twin.names)):
        here, there = one._metadata, other._metadata
        known = "ref_type object_type optional key flags flags_root resolver_cache key_type element_type"
        assert [part.name for part in fields(here)] == known.split(), "a new field may have to be copied"
        assert type(there) is type(here)
        assert vars(there) == vars(here)
        assert there.flags is not here.flags
        assert there.resolver_cache is not here.resolver_cache
    OmegaConf.set_readonly(twin.parts, False)
    twin._metadata.resolver_cache["short_id"]["${short_id:}"] = "other"
    twin._metadata.resolver_cache["another"]["${a:}"] = 1
    assert OmegaConf.is_readonly(config.parts)
    assert dict(metadata.resolver_cache) == {"short_id": {"${short_id:}": "abc123"}}


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
