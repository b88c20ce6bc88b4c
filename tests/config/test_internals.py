from __future__ import annotations

import copy
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, cast

import pytest
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra._internal.config_search_path_impl import ConfigSearchPathImpl
from hydra.core.plugins import Plugins
from hydra.errors import HydraException
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf, base

import assay.config.hydra_internals
from assay.compose.compose import loader
from assay.config.hydra_internals import Repository
from assay.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path


def repository(folder: Path) -> Repository:
    path = ConfigSearchPathImpl()
    path.append("main", f"file://{folder}")
    return Repository(path)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """In place of assay's own options."""
    Plugins.instance()  # knows how a folder is read
    monkeypatch.setattr(assay.config.hydra_internals, "CONF_DIR", tmp_path)
    (tmp_path / "part.yaml").write_text("# P.\nvalue: 1\n", encoding="utf-8")
    return tmp_path


@pytest.mark.parametrize(
    ("text", "reaches_out"),
    [
        ("# @package trainer\na: 1\n", False),
        ("# @package _global_\na: 1\n", True),
        ("defaults:\n  - transform: none\n  - _self_\n", False),
        ("defaults:\n  - other\n", False),
        ("defaults:\n  - /group/other\n", True),
        ("defaults:\n  - other@_global_\n", True),
        ("defaults:\n  - override /loss: mse\n", True),
        ("defaults:\n  - transform@loss: none\n", True),
    ],
)
def test_what_an_option_can_set_beside_its_group(folder: Path, text: str, reaches_out: bool) -> None:
    (folder / "group").mkdir()
    (folder / "group" / "option.yaml").write_text(text, encoding="utf-8")
    assert repository(folder).reaches_out("group/option") == reaches_out
    assert repository(folder).reaches_out("group/nothing"), "not known"


def test_jobs_are_merged_as_hydra_merges_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was merged for another job is used again, as long as the files are the same."""
    merge = assay.config.hydra_internals._merge
    assert ConfigLoaderImpl._compose_config_from_defaults_list is not merge, "Hydra calls ours"

    def composed(*typed: str) -> Any:
        with loader(tmp_path) as hydra:
            found = hydra.compose_config("train", list(typed), RunMode.RUN, with_log_configuration=False)
        OmegaConf.set_struct(found, False)
        made = OmegaConf.to_container(found)
        found.model = "changed"  # each is a copy
        return made

    def by_hydra(*typed: str) -> Any:
        with monkeypatch.context() as patch:
            patch.setattr(ConfigLoaderImpl, "_compose_config_from_defaults_list", merge)
            return composed(*typed)

    (tmp_path / "model").mkdir()
    own = tmp_path / "model" / "own.yaml"
    for hidden in ("[3]", "[50]"):
        own.write_text(f"# Own.\ndefaults: [mlp]\nhidden: {hidden}\n", encoding="utf-8")
        for typed in ("optimizer.lr=7", "optimizer.lr=8", "loss=focal"):
            assert composed("model=own", typed) == by_hydra("model=own", typed)
    for text in ("hidden: {x: 1}\n# @package\n", "_target_: ${\n"):
        own.write_text(f"# Own.\ndefaults: [mlp]\n{text}", encoding="utf-8")
        with pytest.raises((HydraException, ConfigError)) as ours:
            composed("model=own")
        with pytest.raises((HydraException, ConfigError)) as theirs:
            by_hydra("model=own")
        assert str(ours.value) == str(theirs.value)


def test_an_interpolation_is_parsed_once_and_resolved_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "${oc.env:ASSAY_OF_A_TEST}-${c}"
    config = OmegaConf.create({"a": text, "c": 3})
    for value in ("x", "y"):
        monkeypatch.setenv("ASSAY_OF_A_TEST", value)
        assert OmegaConf.create({"other": "${d}", "d": 4}).other == 4, "the parser is one for all"
        assert config.a == f"{value}-3"
    assert base.parse(text) is base.parse(text)  # type: ignore[attr-defined]  # imported there


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
