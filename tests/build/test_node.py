"""One node of a config becomes an object, or one message that names the key."""

from __future__ import annotations

import functools
from typing import Any

import pytest
import torch
from omegaconf import DictConfig, OmegaConf

from assay.build.node import NOT_ARGUMENTS, build
from assay.errors import ConfigError


def config(model: Any, **rest: Any) -> DictConfig:
    return OmegaConf.create({"model": model, "spec": {"num_features": 4}, **rest})


def test_values_come_from_the_rest_of_the_config_which_stays_as_it_is() -> None:
    job = config(
        {"_target_": "torch.nn.Linear", "in_features": "${spec.num_features}", "out_features": "${n}"}, n=2
    )
    OmegaConf.set_readonly(job, True)
    before = OmegaConf.to_container(job)
    assert build(job, "model").weight.shape == (2, 4)
    assert OmegaConf.to_container(job) == before


def test_what_assay_reads_itself_is_no_argument() -> None:
    said = {"_target_": "torch.optim.lr_scheduler.StepLR", "_partial_": True, "step_size": 3}
    job = config({}, scheduler={**said, **dict.fromkeys(NOT_ARGUMENTS["scheduler"], "x")})
    made = build(job, "scheduler")
    assert type(made) is functools.partial
    assert made.keywords == {"step_size": 3}


def test_objects_come_before_what_the_node_says() -> None:
    weight = torch.ones(3)
    job = config({"_target_": "torch.nn.CrossEntropyLoss", "weight": [1, 2, 3], "reduction": "sum"})
    loss = build(job, "model", weight=weight)
    assert loss.weight is weight
    assert loss.reduction == "sum"


def test_nothing_is_nothing() -> None:
    assert build(config(None), "model") is None
    assert build(config({}), "model") is None
    assert build(config({}), "model.deeper.still") is None


@pytest.mark.parametrize(
    ("model", "says"),
    [
        ({"_target_": "torch.nn.Dropout", "p": 5}, "model: dropout"),
        (
            {"_target_": "torch.nn.Sequential", "_args_": [{"_target_": "torch.nn.Dropout", "p": 5}]},
            "model._args_[0]: dropout",
        ),
        (
            {
                "_target_": "torchvision.transforms.v2.Compose",
                "transforms": [{"_target_": "torchvision.transforms.v2.RandomErasing", "p": "x"}],
            },
            "model.transforms[0]",
        ),
        (
            {"_target_": "torch.nn.Linear", "in_features": "${spec.width}"},
            "model.in_features: the data has no",
        ),
        ({"_target_": "torch.nn.Linear", "in_features": "${n}"}, "model.in_features: "),
        ({"_target_": "os.getcwd"}, "model._target_: "),
        ("torch.nn.ReLU", "model: a mapping was expected"),
        ("${n.m}", "model: "),
    ],
)
def test_what_cannot_be_built_names_its_key(model: Any, says: str) -> None:
    with pytest.raises(ConfigError) as caught:
        build(config(model), "model")
    assert caught.value.message.startswith(says)
