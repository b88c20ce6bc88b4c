from __future__ import annotations

from typing import TYPE_CHECKING

from omegaconf import OmegaConf, base

from assay.config.omegaconf_internals import (
    child_node,
    child_values,
    dereferenced,
    is_interpolation,
    is_missing,
    is_null,
    parent_of,
    raw_value,
    root_of,
)

if TYPE_CHECKING:
    import pytest

CONFIG = OmegaConf.create({"a": {"b": "${c}", "none": None, "must": "???"}, "c": 3, "list": ["${c}", 4]})


def test_a_node_is_seen_as_it_is_written() -> None:
    node = child_node(CONFIG.a, "b")
    assert (raw_value(node), is_interpolation(node)) == ("${c}", True)
    assert dereferenced(node)._value() == 3
    assert child_node(CONFIG.a, "nothing") is None
    assert [is_null(child_node(CONFIG.a, name)) for name in ("b", "none", "must")] == [False, True, False]
    assert [is_missing(child_node(CONFIG.a, name)) for name in ("b", "none", "must")] == [False, False, True]
    assert list(child_values(CONFIG.list)) == ["${c}", 4]


def test_what_stands_around_a_node() -> None:
    node = child_node(CONFIG.a, "b")
    assert parent_of(node) is CONFIG.a
    assert root_of(node) is CONFIG
    assert parent_of(CONFIG) is None


def test_an_interpolation_is_parsed_once_and_resolved_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "${oc.env:ASSAY_OF_A_TEST}-${c}"
    config = OmegaConf.create({"a": text, "c": 3})
    for value in ("x", "y"):
        monkeypatch.setenv("ASSAY_OF_A_TEST", value)
        assert OmegaConf.create({"other": "${d}", "d": 4}).other == 4, "the parser is one for all"
        assert config.a == f"{value}-3"
    assert base.parse(text) is base.parse(text)  # type: ignore[attr-defined]  # imported there
