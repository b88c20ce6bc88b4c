from __future__ import annotations

import re

from omegaconf import OmegaConf

from assay.compose.resolvers import register


def test_short_id_is_the_same_within_one_config_only() -> None:
    register()
    one, two = (OmegaConf.create({"a": "${short_id:}", "b": "x-${short_id:}"}) for _ in range(2))
    assert re.fullmatch(r"[0-9a-f]{6}", one.a)
    assert one.b == f"x-{one.a}"
    assert one.a != two.a


def test_registering_again_does_no_harm() -> None:
    register()
    register()
    assert OmegaConf.has_resolver("short_id")
