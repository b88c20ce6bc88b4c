"""Calls are compared with signatures before anything is built; tests/check/broken has more of them."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import pytest
from omegaconf import OmegaConf

from assay.build import assembly, node, trainer
from assay.check.signature import check_signatures, injected_arguments
from assay.compose.compose import compose, job_config
from assay.errors import ConfigError
from assay.targets.allowed_targets import find_targets

if TYPE_CHECKING:
    from pathlib import Path


def test_none_is_taken_where_it_is_the_default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "careless.py").write_text("def build(size: int = None, depth: int = 3): ...\n")
    monkeypatch.syspath_prepend(tmp_path)
    part = {"_target_": "careless.build", "size": None}
    check_signatures(OmegaConf.create({"part": part, "trusted_packages": ["careless"]}))
    with pytest.raises(ConfigError, match=r"part\.depth"):
        check_signatures(OmegaConf.create({"part": part | {"depth": None}, "trusted_packages": ["careless"]}))


def test_what_other_libraries_read_of_an_annotation_says_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "unit.py").write_text(
        "from typing import Annotated\ndef build(width: Annotated[int, 'pixels']): ...\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    part = {"_target_": "unit.build", "width": "wide"}
    with pytest.raises(ConfigError, match=r"^part\.width: expected int, got wide"):
        check_signatures(OmegaConf.create({"part": part, "trusted_packages": ["unit"]}))


def test_what_is_used_as_it_is_cannot_be_a_partial() -> None:
    typed = ["data=cifar10", "augment=mixup", "callbacks=[default,ema]", "logger=[csv]", "scheduler=plateau"]
    config = job_config(compose(typed))
    blamed: dict[str, str] = {}
    for key, _ in find_targets(config):
        tried = copy.deepcopy(config)
        OmegaConf.update(tried, f"{key}._partial_", True, force_add=True)
        try:
            check_signatures(tried)
            blamed[key] = ""
        except ConfigError as error:
            blamed[key] = error.key
    called_later = {"augment", "data.source.dataset", "optimizer", "scheduler"}
    assert {key for key, at in blamed.items() if not at} == called_later
    assert blamed["callbacks.ema"] == "callbacks.ema._partial_"


def test_injected_arguments_are_those_that_assemble_gives(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    given: dict[str, set[str]] = {}

    def noted(config: Any, key: str, **objects: Any) -> Any:
        given[key] = set(objects)
        return node.build(config, key, **objects)

    for room in (assembly, trainer):
        monkeypatch.setattr(room, "build", noted)
    monkeypatch.chdir(tmp_path)
    assembly.assemble(job_config(compose(["data=wine", "device=cpu"])))
    for key in ("trainer", "module"):
        injected = injected_arguments(OmegaConf.create({}), key)
        assert injected is not None
        assert set(injected.names) == given[key]
