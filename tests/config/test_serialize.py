"""Text of a config is read back as what it was, and looks as OmegaConf's own."""

from __future__ import annotations

import yaml
from hypothesis import given
from hypothesis import strategies as st
from omegaconf import OmegaConf

from assay.config.serialize import from_text, known, to_text, to_yaml

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


@given(TREES)
def test_yaml_says_what_omegaconf_says(tree: dict[str, object]) -> None:
    theirs = OmegaConf.to_yaml(OmegaConf.create(tree))
    assert yaml.safe_load(to_yaml(tree)) == yaml.safe_load(theirs)


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


@given(TREES)
def test_text_is_read_back_as_it_was(tree: dict[str, object]) -> None:
    config = OmegaConf.create(tree)
    assert from_text(to_text(config)) == config


def test_a_job_is_resolved_once_its_data_is_known() -> None:
    job = OmegaConf.create({"classes": "${spec.num_classes}"})
    assert known(job) == {"classes": "${spec.num_classes}"}
    job.spec = {"num_classes": 3}
    assert known(job) == {"classes": 3, "spec": {"num_classes": 3}}
