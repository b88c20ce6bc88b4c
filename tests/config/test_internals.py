from __future__ import annotations

import copy
from dataclasses import dataclass, field, fields
from typing import Any, cast

from omegaconf import DictConfig, OmegaConf


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
