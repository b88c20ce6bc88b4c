from __future__ import annotations

from omegaconf import OmegaConf

from assay.config.tree import walk


def test_every_place_and_what_it_is() -> None:
    config = OmegaConf.create({"a": {"b": [1, {"c": "???"}]}, "d": "${a.b}", "e": None, "f": {}})
    entries = {entry.key: entry for entry in walk(config)}
    assert list(entries) == ["a", "a.b", "a.b[0]", "a.b[1]", "a.b[1].c", "d", "e", "f"]
    assert [key for key, entry in entries.items() if entry.is_container] == ["a", "a.b", "a.b[1]", "f"]
    assert [key for key, entry in entries.items() if entry.is_missing] == ["a.b[1].c"]
    assert [key for key, entry in entries.items() if entry.is_interpolation] == ["d"]


def test_parent_and_name_lead_to_the_value() -> None:
    config = OmegaConf.create({"a": {"b": [1, 2]}, "c": "${a.b}"})
    for entry in walk(config):
        assert entry.parent[entry.name] == OmegaConf.select(config, entry.key)


def test_prefix_and_lists() -> None:
    assert [entry.key for entry in walk(OmegaConf.create([{"x": 1}]), "opt")] == ["opt[0]", "opt[0].x"]


def test_resolves_nothing() -> None:
    config = OmegaConf.create({"a": "${nowhere}", "b": {"c": "${oc.env:NOT_SET_ANYWHERE}"}})
    assert [entry.key for entry in walk(config)] == ["a", "b", "b.c"]
