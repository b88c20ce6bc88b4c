"""The module of a job: what data, loss and optimizer decide together."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
import torch

from assay.build.assembly import build_module, build_optimization
from assay.build.datamodule import describe, open_data
from assay.build.trainer import build_trainer
from assay.compose.compose import compose, job_config
from assay.errors import ConfigError
from assay.module import Module

if TYPE_CHECKING:
    from omegaconf import DictConfig


def job(*overrides: str) -> DictConfig:
    config = job_config(compose([*overrides, "device=cpu", "callbacks=[]", "hydra.run.dir=run"]))
    opened: Any = open_data(config)
    describe(config, opened.spec)
    return config


def built(config: DictConfig) -> Module:
    module = build_module(config, build_trainer(config))
    assert isinstance(module, Module)
    return module


@pytest.mark.parametrize(
    ("overrides", "outputs"),
    [
        (["data=breast_cancer", "loss=bce_with_logits"], 1),
        (["data=breast_cancer", "loss=cross_entropy"], 2),
        (["data=iris"], 3),
        (["data=diabetes"], 1),
    ],
)
def test_data_and_loss_decide_how_many_outputs_a_model_has(overrides: list[str], outputs: int) -> None:
    config = job(*overrides)
    module = built(config)
    assert config.spec.num_outputs == outputs
    assert module(torch.zeros(2, *config.spec.input_shape)).shape == (2, outputs)


def test_a_loss_that_does_not_go_with_the_data_is_not_even_made() -> None:
    config = job("data=diabetes")
    config.loss = {"_target_": "assay.loss.ldam.LDAM", "class_counts": "no"}
    with pytest.raises(ConfigError, match="LDAM cannot be used with 1 real-valued target"):
        built(config)


def test_what_lightning_reads_of_a_schedule_is_not_given_to_the_scheduler() -> None:
    config = job("data=iris", "scheduler=plateau", "scheduler.monitor=val/accuracy", "scheduler.factor=0.5")
    parts = build_optimization(config)
    assert parts["schedule"] == {key: config.scheduler[key] for key in ("interval", "frequency", "monitor")}
    assert isinstance(parts["scheduler"], partial)
    assert parts["scheduler"].func is torch.optim.lr_scheduler.ReduceLROnPlateau
    assert parts["scheduler"].keywords["factor"] == 0.5
    assert parts["scheduler"].keywords["mode"] == "max"
    assert not parts["scheduler"].keywords.keys() & parts["schedule"].keys()


def test_without_a_scheduler() -> None:
    parts = build_optimization(job("data=iris", "scheduler=none"))
    assert parts["scheduler"] is None
    assert parts["schedule"] == {}
