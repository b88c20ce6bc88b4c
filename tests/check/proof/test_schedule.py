"""The learning rates of a check are those that Lightning's run uses."""

from __future__ import annotations

import inspect
import re
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch.optim import lr_scheduler as schedulers
from torch.optim.lr_scheduler import LambdaLR

from assay.build.run_length import RunLength
from assay.check.job import COUNTS, check_job
from assay.check.optimization import Curve, lr_curve
from assay.check.prove import Prover
from assay.compose.compose import compose, job_config

if TYPE_CHECKING:
    from collections.abc import Callable

OPTIONS = (
    "warmup_cosine",
    "cosine",
    "onecycle",
    "polynomial",
    "exponential",
    "inverse_sqrt",
    "multistep",
    "step",
    "none",
)


@pytest.mark.always("onecycle", "exponential", "inverse_sqrt")
@pytest.mark.parametrize("option", OPTIONS)
def test_every_schedule_is_followed_as_lightning_steps_it(option: str, train: Callable[..., Any]) -> None:
    typed = [f"scheduler={option}", "data=iris", "trainer.max_epochs=4", "optimizer=sgd"]
    if option == "multistep":
        typed.append("scheduler.milestones=[1,3]")
    if option == "step":
        typed.append("scheduler.step_size=2")
    job = job_config(compose([*typed, "device=cpu"]))
    check_job(job)
    report = Prover().prove(job, typed, curve=True).report
    trained = train(*typed)
    assert report.lr == pytest.approx([rates[0] for rates in trained.watch.lrs], rel=1e-6, abs=1e-12)
    assert len(report.lr) == report.spec["total_steps"]


def test_the_highest_group_is_shown_and_a_long_run_is_cut_short() -> None:
    weights = [torch.nn.Parameter(torch.zeros(1)) for _ in range(2)]
    optimizer = torch.optim.SGD([{"params": weights[:1], "lr": 0.1}, {"params": weights[1:], "lr": 0.3}])
    scheduler = LambdaLR(optimizer, lambda step: 0.5**step)
    length = RunLength(1000, 1000, 1, 10_000, 10_000_000)
    curve = lr_curve(optimizer, scheduler, {"interval": "step"}, length, seconds=0.05)
    assert curve.rates[:3] == pytest.approx([0.3, 0.15, 0.075])
    assert 100 < len(curve.rates) < 10_000_000
    assert curve.note.startswith("the highest of 2 parameter groups; the first ")
    assert not list(curve.warnings()), "nothing is said of a part of a run"


def test_frequency_and_accumulation_are_counted_as_lightning_counts_them(train: Callable[..., Any]) -> None:
    """It counts the batches of each epoch anew, and looks only where the optimizer has stepped."""
    typed = ["scheduler=exponential", "scheduler.gamma=0.5", "scheduler.interval=step", "data=iris"]
    typed += ["optimizer=sgd", "trainer.max_epochs=3", "scheduler.frequency=2", "data.batch_size=12"]
    typed += ["trainer.accumulate_grad_batches=2", "trainer.limit_train_batches=7.0", "device=cpu"]
    job = job_config(compose(typed))
    report = Prover().prove(job, typed, curve=True).report
    trained = train(*typed)
    assert report.lr == pytest.approx([rates[0] for rates in trained.watch.lrs])
    assert len(report.lr) == 12


STEPS = RunLength(20, 20, 1, 2, 40)


def curve_of(make: Callable[[Any], Any], lr: float = 0.1, *, interval: str = "step") -> Curve:
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=lr)
    return lr_curve(optimizer, make(optimizer), {"interval": interval}, STEPS, seconds=60.0, given=lr)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda o: schedulers.StepLR(o, 40), "stays at 0.1 in all 40 steps"),
        (lambda o: schedulers.MultiStepLR(o, [100, 150]), "stays at 0.1"),
        (lambda o: schedulers.PolynomialLR(o, 10), "0 from step 11 of 40 on"),
        (lambda o: LambdaLR(o, lambda step: step / 4000), "rises to 0.000975 at most in the 40 steps"),
        (lambda o: schedulers.ExponentialLR(o, 1.5), r"rises to 7\.\d+e\+05"),
        (lambda o: schedulers.CosineAnnealingLR(o, 40), ""),
        (lambda o: schedulers.PolynomialLR(o, 40), ""),
        (lambda o: schedulers.OneCycleLR(o, 0.1, 40), ""),
        (lambda o: schedulers.LinearLR(o, 0.01, total_iters=5), ""),
    ],
    ids=[
        "step",
        "multistep",
        "polynomial ends",
        "lambda",
        "exponential",
        "cosine",
        "polynomial",
        "onecycle",
        "linear",
    ],
)
def test_what_a_schedule_hardly_means(make: Callable[[Any], Any], says: str) -> None:
    found = "; ".join(curve_of(make).warnings())
    assert re.search(says, found) if says else not found


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


def test_every_count_of_torchs_schedulers_is_known() -> None:
    """Whatever torch annotates as a whole number is checked, in each of its schedulers."""
    for name, kind in vars(schedulers).items():
        if name.startswith("_") or not (inspect.isclass(kind) and issubclass(kind, schedulers.LRScheduler)):
            continue
        for parameter in inspect.signature(kind).parameters.values():
            whole = parameter.annotation in ("int", "int | None", int, int | None, "Iterable[int]")
            assert not whole or parameter.name in {*COUNTS, "last_epoch"}, f"{name}.{parameter.name}"
