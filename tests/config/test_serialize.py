"""Text of a config is read back as what it was, and looks as OmegaConf's own."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field, fields
from typing import Any, cast

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
from assay.config.tree import walk

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
