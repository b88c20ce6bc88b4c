"""Optimizers and schedulers are made with their own values before a run."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from omegaconf import DictConfig, OmegaConf
from torch import nn

from assay.build.run_length import RunLength
from assay.check.optimization import follow_lr, unfinished
from assay.compose.listing import list_options
from assay.compose.recipe import settle_recipe
from assay.errors import ConfigError

LENGTH = RunLength(5, 5, 1, 10, 50)
OPTIONS = {
    group: {option.name: OmegaConf.load(option.path) for option in list_options(group)}
    for group in ("optimizer", "scheduler", "param_groups")
}


def with_optimizer(optimizer: str, scheduler: str, **change: Any) -> DictConfig:
    config = OmegaConf.create({"spec": {"steps_per_epoch": 5, "total_steps": 50}})
    for group, name in (("optimizer", optimizer), ("scheduler", scheduler), ("param_groups", "all")):
        config[group] = OPTIONS[group][name] or None
    for key, value in change.items():
        OmegaConf.update(config, key.replace("__", "."), value)
    settle_recipe(config)
    return config


def small() -> nn.Module:
    return nn.Sequential(nn.Linear(5, 4), nn.ReLU(), nn.Linear(4, 3))


@pytest.mark.parametrize("optimizer", OPTIONS["optimizer"])
def test_every_optimizer(optimizer: str) -> None:
    model = small()
    before = [p.detach().clone() for p in model.parameters()]
    follow_lr(with_optimizer(optimizer, "none"), model, LENGTH, seconds=1.0)
    assert all(map(torch.equal, before, model.parameters()))


@pytest.mark.parametrize(
    ("change", "key"),
    [
        ({"optimizer__lr": -1}, "optimizer.lr"),
        ({"optimizer__lr": 0}, "optimizer.lr"),
        ({"optimizer__lr": float("inf")}, "optimizer.lr"),
        ({"optimizer__eps": -2}, "optimizer.eps"),
        ({"optimizer__weight_decay": -3}, "optimizer.weight_decay"),
    ],
)
def test_values_out_of_range(change: dict[str, Any], key: str) -> None:
    with pytest.raises(ConfigError) as caught:
        follow_lr(with_optimizer("adamw", "none", **change), small(), LENGTH, seconds=1.0)
    assert caught.value.message.startswith(f"{key}: ")
    assert caught.value.hint.startswith(f"for example {key}=")


def test_a_model_that_takes_its_shape_from_the_first_batch_waits() -> None:
    follow_lr(with_optimizer("adamw", "none", optimizer__lr=-1), nn.LazyLinear(3), LENGTH, seconds=1.0)


@pytest.mark.parametrize("optimizer", OPTIONS["optimizer"])
@pytest.mark.parametrize("lr", [0, -1, float("nan"), float("inf")])
def test_every_optimizer_needs_a_learning_rate(optimizer: str, lr: float) -> None:
    with pytest.raises(ConfigError) as caught:
        follow_lr(with_optimizer(optimizer, "none", optimizer__lr=lr), small(), LENGTH, seconds=1.0)
    assert caught.value.key == "optimizer.lr"


def test_the_number_without_which_a_schedule_can_be_followed() -> None:
    node = {"_target_": "torch.optim.lr_scheduler.CosineAnnealingLR", "_partial_": True, "interval": "step"}
    config = with_optimizer("sgd", "none")
    config.scheduler = {**node, "T_max": 0, "eta_min": 0.0}
    with pytest.raises(ConfigError) as caught:
        follow_lr(config, small(), LENGTH, seconds=1.0)
    assert (caught.value.key, caught.value.hint) == ("scheduler.T_max", "for example scheduler.T_max=1")


@pytest.mark.parametrize(
    ("scheduler", "says"),
    [
        ({"T_max": 50, "interval": "step"}, ""),
        ({"T_max": 1000, "interval": "step"}, "scheduler.T_max=1000: this run has 50 steps"),
        ({"T_max": 50, "interval": "epoch"}, "this run has 10 epochs"),
        ({"T_max": 50, "interval": "step", "frequency": 2}, "this run has 25 steps"),
        ({"lr_lambda": {"total_steps": 90}, "interval": "step"}, "scheduler.lr_lambda.total_steps=90"),
    ],
)
def test_schedules_that_are_not_finished(scheduler: dict[str, Any], says: str) -> None:
    found = unfinished(OmegaConf.create({"scheduler": scheduler}), LENGTH)
    assert len(found) == bool(says)
    assert says in "".join(found)
