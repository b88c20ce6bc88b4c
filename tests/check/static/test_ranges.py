"""Numbers with which torch's own classes do nothing that anyone means are refused without torch."""

from __future__ import annotations

import math

import pytest
from omegaconf import OmegaConf

from assay.check.job import Range, check_ranges
from assay.errors import ConfigError


@pytest.mark.parametrize(
    ("interval", "inside", "outside"),
    [
        (Range(0), [0, 1e9], [-1e-9]),
        (Range(0, above=True), [1e-9], [0, -1]),
        (Range(0, 1), [0, 1], [-0.1, 1.1]),
        (Range(0, 1, below=True), [0, 0.99], [1]),
        (Range(-1, never=0), [-1, 1], [0, -2]),
    ],
)
def test_range(interval: Range, inside: list[float], outside: list[float]) -> None:
    assert all(value in interval for value in inside)
    assert not any(value in interval for value in outside)


REFUSED = [
    ("optimizer", "torch.optim.AdamW", "lr", 0),
    ("optimizer", "torch.optim.AdamW", "lr", 1e3),
    ("optimizer", "torch.optim.AdamW", "eps", 1e12),
    ("optimizer", "torch.optim.SGD", "momentum", 7),
    ("optimizer", "torch.optim.RMSprop", "alpha", 7),
    ("optimizer", "torch.optim.LBFGS", "max_iter", 0),
    ("scheduler", "torch.optim.lr_scheduler.StepLR", "step_size", 0),
    ("scheduler", "torch.optim.lr_scheduler.StepLR", "gamma", -1),
    ("scheduler", "torch.optim.lr_scheduler.ReduceLROnPlateau", "patience", -1),
    ("scheduler", "torch.optim.lr_scheduler.ReduceLROnPlateau", "threshold", math.nan),
    ("scheduler", "torch.optim.lr_scheduler.LambdaLR", "last_epoch", 3),
    ("loss", "torch.nn.HuberLoss", "delta", math.inf),
    ("augment", "torchvision.transforms.v2.MixUp", "alpha", math.inf),
]


@pytest.mark.parametrize(("group", "target", "name", "value"), REFUSED)
def test_refused(group: str, target: str, name: str, value: float) -> None:
    config = OmegaConf.create({group: {"_target_": target, name: value}})
    with pytest.raises(ConfigError, match=f"{value} was given; a .*number") as caught:
        check_ranges(config)
    assert caught.value.key == f"{group}.{name}"


def test_each_number_of_a_list_is_looked_at() -> None:
    target = "torch.optim.lr_scheduler.MultiStepLR"
    config = OmegaConf.create({"scheduler": {"_target_": target, "milestones": [3, -1]}})
    with pytest.raises(ConfigError, match=r"scheduler\.milestones\[1\]: -1 was given"):
        check_ranges(config)


@pytest.mark.parametrize(
    "config",
    [
        {"optimizer": {"_target_": "my_project.Sign", "lr": 1e6, "eps": 0}},
        {"model": {"_target_": "torch.nn.Hardtanh", "max_val": math.inf}},
        {
            "scheduler": {
                "_target_": "torch.optim.lr_scheduler.CosineAnnealingLR",
                "T_max": "${spec.total_steps}",
            }
        },
        {"optimizer": {"_target_": "torch.optim.Adafactor", "eps": [None, 0.001]}},
        {
            "model": {
                "_target_": "torchvision.models.VisionTransformer",
                "patch_size": "${oc.select:spec.x,0}",
            }
        },
    ],
)
def test_left_alone(config: dict[str, dict[str, object]]) -> None:
    check_ranges(OmegaConf.create(config))
