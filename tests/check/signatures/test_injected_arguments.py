from __future__ import annotations

from typing import TYPE_CHECKING, Any

from omegaconf import OmegaConf

from assay.check.signature import supplied

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def test_the_arguments_that_assay_gives_are_those_that_assemble_gives(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from assay.build import assembly, node, trainer
    from assay.compose.compose import compose, job_config

    given: dict[str, set[str]] = {}

    def noted(config: Any, key: str, **objects: Any) -> Any:
        given[key] = set(objects)
        return node.build(config, key, **objects)

    for room in (assembly, trainer):
        monkeypatch.setattr(room, "build", noted)
    monkeypatch.chdir(tmp_path)
    assembly.assemble(job_config(compose(["data=wine", "device=cpu"])))
    config = OmegaConf.create({})
    for key in ("trainer", "module"):
        told = supplied(config, key)
        assert told is not None
        assert set(told.names) == given[key]
