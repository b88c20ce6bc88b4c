from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st
from omegaconf import OmegaConf

from assay.config.source_location import joined, split
from assay.config.yaml_file import shown
from assay.paths import CONF_DIR

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

PARTS = st.lists(st.from_regex(r"[a-z_][a-z0-9_]{0,5}|[0-9]{1,2}", fullmatch=True), min_size=1, max_size=6)


@given(PARTS)
def test_a_key_comes_back(parts: list[str]) -> None:
    assert split(joined(parts)) == tuple(parts)


def test_omegaconf_finds_what_was_joined() -> None:
    config = OmegaConf.create({"model": {"_args_": [{"size": 1}, {"size": [7, 8]}]}})
    assert OmegaConf.select(config, joined(("model", "_args_", "1", "size", "0"))) == 7


def test_a_path_as_a_user_knows_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert shown(tmp_path / "conf" / "a.yaml") == "conf/a.yaml"
    assert shown(CONF_DIR / "optimizer" / "adamw.yaml") == "conf/optimizer/adamw.yaml"
    assert shown(tmp_path.parent / "a.yaml") == str(tmp_path.parent / "a.yaml")
