"""Optimizers and schedules are followed as Lightning steps them, with their own values."""

from __future__ import annotations

import inspect
import re
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
import torch
from omegaconf import DictConfig, OmegaConf
from tests.check.jobs import prove
from torch import nn
from torch.optim import lr_scheduler as schedulers
from torch.optim.lr_scheduler import LambdaLR

from assay.build.run_length import RunLength
from assay.check.optimization import Curve, follow_lr, lr_curve, unfinished_schedule_warnings
from assay.check.values import STEP_COUNTS
from assay.compose.listing import list_options
from assay.compose.recipe import settle_recipe
from assay.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable

LENGTH, STEPS = RunLength(5, 5, 1, 10, 50), RunLength(20, 20, 1, 2, 40)
OPTIONS = {
    group: {option.name: OmegaConf.load(option.path) for option in list_options(group)}
    for group in ("optimizer", "scheduler", "param_groups")
}
SCHEDULES = {
    **dict.fromkeys(
        ("warmup_cosine", "cosine", "onecycle", "polynomial", "exponential", "inverse_sqrt", "none"), ""
    ),
    "multistep": "scheduler.milestones=[1,3]",
    "step": "scheduler.step_size=2",
}
COUNTED = (
    *("scheduler.gamma=0.5", "scheduler.interval=step", "scheduler.frequency=2", "data.batch_size=12"),
    *("trainer.accumulate_grad_batches=2", "trainer.limit_train_batches=7"),
)
"""Lightning counts the batches of each epoch anew, and looks only where the optimizer has stepped."""


@pytest.mark.always("onecycle-more2", "exponential-more9")
@pytest.mark.parametrize(
    ("option", "more"),
    [*((name, typed.split()) for name, typed in SCHEDULES.items()), ("exponential", COUNTED)],
)
def test_every_schedule_is_followed_as_lightning_steps_it(
    option: str, more: tuple[str, ...], train: Callable[..., Any]
) -> None:
    typed = [f"scheduler={option}", "data=iris", "trainer.max_epochs=4", "optimizer=sgd", *more]
    report = prove(*typed, curve=True)
    trained = train(*typed)
    assert report.lr == pytest.approx([rates[0] for rates in trained.watch.lrs], rel=1e-6, abs=1e-12)
    assert len(report.lr) == report.spec["total_steps"]


def test_the_highest_group_is_shown_and_a_long_run_is_cut_short() -> None:
    weights = [torch.nn.Parameter(torch.zeros(1)) for _ in range(2)]
    optimizer = torch.optim.SGD([{"params": weights[:1], "lr": 0.1}, {"params": weights[1:], "lr": 0.3}])
    length = RunLength(1000, 1000, 1, 10_000, 10_000_000)
    make = partial(LambdaLR, lr_lambda=lambda step: 0.5**step)
    curve = lr_curve(optimizer, make, {"interval": "step"}, length, seconds=0.05)
    assert curve.rates[:3] == pytest.approx([0.3, 0.15, 0.075])
    assert 100 < len(curve.rates) < 10_000_000
    assert curve.note.startswith("the highest of 2 parameter groups; the first ")
    assert not list(curve.warnings()), "nothing is said of a part of a run"


def curve_of(make: Callable[[Any], Any], lr: float = 0.1) -> Curve:
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=lr)
    return lr_curve(optimizer, make, {"interval": "step"}, STEPS, seconds=60.0)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda o: schedulers.StepLR(o, 40), "stays at 0.1 in all 40 steps"),
        (lambda o: schedulers.PolynomialLR(o, 10), "0 from step 11 of 40 on"),
        (lambda o: LambdaLR(o, lambda step: step / 4000), "rises to 0.000975 at most in the 40 steps"),
        (lambda o: schedulers.ExponentialLR(o, 1.5), r"rises to 7\.\d+e\+05"),
        (lambda o: schedulers.CosineAnnealingLR(o, 40), ""),
        (lambda o: schedulers.OneCycleLR(o, 0.1, 40), ""),
        (lambda o: schedulers.LinearLR(o, 0.01, total_iters=5), ""),
    ],
)
def test_what_a_schedule_hardly_means(make: Callable[[Any], Any], says: str) -> None:
    warned = "; ".join(curve_of(make).warnings())
    assert re.search(says, warned) if says else not warned


@pytest.mark.parametrize(
    ("lr", "make"),
    [
        (0.0, lambda _: None),
        (float("inf"), lambda _: None),
        (0.1, lambda o: schedulers.ExponentialLR(o, -1)),
        (0.1, lambda o: schedulers.ExponentialLR(o, float("nan"))),
        (0.1, lambda o: LambdaLR(o, lambda _: 0)),
    ],
)
def test_learning_rates_that_nothing_can_be_trained_with(lr: float, make: Callable[[Any], Any]) -> None:
    with pytest.raises(ValueError, match=r"^lr is "):
        curve_of(make, lr)


def test_every_count_of_torchs_schedulers_is_checked() -> None:
    """Whatever torch annotates as a whole number."""
    for name, kind in vars(schedulers).items():
        if name.startswith("_") or not (inspect.isclass(kind) and issubclass(kind, schedulers.LRScheduler)):
            continue
        for parameter in inspect.signature(kind).parameters.values():
            whole = parameter.annotation in ("int", "int | None", int, int | None, "Iterable[int]")
            assert not whole or parameter.name in {*STEP_COUNTS, "last_epoch", "cooldown", "patience"}, (
                f"{name}.{parameter.name}"
            )


# -- optimizers


def with_optimizer(optimizer: str, **change: Any) -> DictConfig:
    config = OmegaConf.create({"spec": {"steps_per_epoch": 5, "total_steps": 50}})
    for group, name in (("optimizer", optimizer), ("scheduler", "none"), ("param_groups", "all")):
        config[group] = OPTIONS[group][name] or None
    for key, value in change.items():
        OmegaConf.update(config, key.replace("__", "."), value)
    settle_recipe(config)
    return config


def follow(config: DictConfig, model: nn.Module | None = None) -> None:
    model = model or nn.Sequential(nn.Linear(5, 4), nn.ReLU(), nn.Linear(4, 3))
    before = [p.detach().clone() for p in model.parameters() if not isinstance(p, nn.UninitializedParameter)]
    follow_lr(config, model, LENGTH, seconds=1.0)
    assert all(map(torch.equal, before, model.parameters()))


@pytest.mark.parametrize("optimizer", OPTIONS["optimizer"])
def test_every_optimizer_needs_a_learning_rate(optimizer: str) -> None:
    follow(with_optimizer(optimizer))
    for lr in (0, -1, float("nan"), float("inf")):
        with pytest.raises(ConfigError, match=r"^optimizer\.lr: ") as caught:
            follow(with_optimizer(optimizer, optimizer__lr=lr))
        assert caught.value.hint.startswith("for example optimizer.lr=")


@pytest.mark.parametrize(
    ("key", "value"),
    [("optimizer__eps", -2), ("optimizer__weight_decay", -3)],
)
def test_values_that_an_optimizer_refuses(key: str, value: float) -> None:
    with pytest.raises(ConfigError, match=f"^{key.replace('__', '.')}: "):
        follow(with_optimizer("adamw", **{key: value}))


def test_a_model_that_takes_its_shape_from_the_first_batch_waits() -> None:
    follow(with_optimizer("adamw", optimizer__lr=-1), nn.LazyLinear(3))


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
    found = unfinished_schedule_warnings(OmegaConf.create({"scheduler": scheduler}), LENGTH)
    assert len(found) == bool(says)
    assert says in "".join(found)
