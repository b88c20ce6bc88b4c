from __future__ import annotations

from typing import Any

import pytest
import torch
from lightning.pytorch.plugins import Precision
from omegaconf import OmegaConf
from tests.check.own_models import own_models, prove

from assay.check.fake_step import model_on_meta, module_on_meta
from assay.errors import ConfigError

__all__ = ["own_models"]


def job(**nodes: Any) -> Any:
    return OmegaConf.create({"trainer": {}, "trusted_packages": [], "finetune": None, **nodes})


def conv(channels: int) -> dict[str, Any]:
    return {
        "_target_": "torch.nn.Conv2d",
        "in_channels": channels,
        "out_channels": channels,
        "kernel_size": 9,
    }


def test_a_model_takes_no_memory() -> None:
    model, finetune = model_on_meta(job(model=conv(10**6)), Precision())
    assert finetune is None
    assert all(parameter.is_meta for parameter in model.parameters())
    assert sum(parameter.numel() for parameter in model.parameters()) == 81 * 10**12 + 10**6


def test_it_lies_in_memory_as_in_the_run() -> None:
    model, _ = model_on_meta(job(model=conv(4), trainer={"channels_last": True}), Precision())
    assert isinstance(model, torch.nn.Conv2d)
    assert model.weight.is_contiguous(memory_format=torch.channels_last)


def test_what_is_wrong_is_an_error_of_the_config() -> None:
    with pytest.raises(ConfigError, match="groups"):
        model_on_meta(job(model={**conv(4), "groups": 3}), Precision())
    with pytest.raises(ConfigError, match="not allowed"):
        module_on_meta(job(module=conv(4)), Precision())


def test_a_constructor_that_computes_is_run_for_real() -> None:
    report = prove(model="ComputesWhileMade")
    assert report.step is not None
    assert report.parameters == (4 * 2 + 2) + (2 * 3 + 3)
