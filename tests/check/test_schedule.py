"""The learning rates of a check are those that Lightning's run uses."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch.optim.lr_scheduler import LambdaLR

from assay.check.job import check_job
from assay.check.prove import Prover
from assay.check.schedule import lr_curve
from assay.config.compose import compose, job_config

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


@pytest.mark.parametrize("option", OPTIONS)
def test_every_schedule_is_followed_as_lightning_steps_it(option: str, train: Callable[..., Any]) -> None:
    typed = [f"scheduler={option}", "data=iris", "trainer.max_epochs=4", "optimizer=sgd"]
    if option == "multistep":
        typed.append("scheduler.milestones=[1,3]")
    if option == "step":
        typed.append("scheduler.step_size=2")
    job = job_config(compose([*typed, "device=cpu"]))
    check_job(job)
    report = Prover().prove(job, typed, curve=True)
    trained = train(*typed)
    assert report.lr == pytest.approx([rates[0] for rates in trained.watch.lrs], rel=1e-6, abs=1e-12)
    assert len(report.lr) == report.spec["total_steps"]


def test_the_highest_group_is_shown_and_a_long_run_is_cut_short() -> None:
    weights = [torch.nn.Parameter(torch.zeros(1)) for _ in range(2)]
    optimizer = torch.optim.SGD([{"params": weights[:1], "lr": 0.1}, {"params": weights[1:], "lr": 0.3}])
    scheduler = LambdaLR(optimizer, lambda step: 0.5**step)
    spec = {"total_steps": 10_000_000, "steps_per_epoch": 1000}
    rates, note = lr_curve(optimizer, scheduler, {"interval": "step"}, spec, seconds=0.05)
    assert rates[:3] == pytest.approx([0.3, 0.15, 0.075])
    assert 100 < len(rates) < 10_000_000
    assert note.startswith("the highest of 2 parameter groups; the first ")
