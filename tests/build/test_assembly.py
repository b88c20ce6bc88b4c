"""A job's three objects, and that the same seed gives the same weights whatever the data drew."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch

from assay.build.assembly import Assembly, assemble
from assay.build.datamodule import open_data
from assay.compose.compose import compose, job_config

if TYPE_CHECKING:
    from pathlib import Path


def assembled(*overrides: str, **options: Any) -> Assembly:
    return assemble(job_config(compose(["data=iris", "model=mlp", "device=cpu", *overrides])), **options)


def weights(assembly: Assembly) -> torch.Tensor:
    return torch.cat([parameter.detach().flatten() for parameter in assembly.module.parameters()])


def test_nothing_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assembly = assembled("callbacks=[default]", "logger=[csv,tensorboard]", "hydra.run.dir=run")
    assert list(tmp_path.iterdir()) == []
    assert assembly.plain["spec"]["num_classes"] == 3


def test_weights_are_those_of_the_seed() -> None:
    config = job_config(compose(["data=iris", "model=mlp", "device=cpu"]))
    opened = open_data(config)
    torch.rand(1000)  # a datamodule of somebody's own may draw as much as it likes
    first = assemble(config, datamodule=opened)
    assert first.datamodule is opened
    assert torch.equal(weights(first), weights(assembled()))
    assert not torch.equal(weights(first), weights(assembled("seed=1")))


@pytest.mark.parametrize(("asked", "set_to"), [("high", "high"), ("null", "highest")])
def test_precision_of_matrix_products(asked: str, set_to: str) -> None:
    before = torch.get_float32_matmul_precision()
    try:
        assembled(f"++trainer.matmul_precision={asked}")
        assert torch.get_float32_matmul_precision() == set_to
    finally:
        torch.set_float32_matmul_precision(before)
