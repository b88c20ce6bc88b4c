"""A run that goes on with other arguments is where one with these arguments would be."""

from __future__ import annotations

from typing import Any

import lightning as L
import pytest
import torch
from lightning.pytorch.utilities.types import LRSchedulerConfig
from torch.optim.lr_scheduler import CosineAnnealingLR, LRScheduler, ReduceLROnPlateau, StepLR

from assay.loop.carried_state import ChangedArguments


def trainer_with(optimizer: torch.optim.Optimizer, scheduler: Any) -> L.Trainer:
    trainer = L.Trainer(accelerator="cpu", logger=False, barebones=True)
    trainer.strategy.optimizers = [optimizer]
    plateau = isinstance(scheduler, ReduceLROnPlateau)
    trainer.strategy.lr_scheduler_configs = [LRSchedulerConfig(scheduler, reduce_on_plateau=plateau)]
    return trainer


def sgd(lr: float = 0.1, **options: Any) -> torch.optim.SGD:
    return torch.optim.SGD([torch.nn.Parameter(torch.zeros(2))], lr=lr, **options)


def after(steps: int, kind: type[LRScheduler], lr: float = 0.1, **options: Any) -> tuple[Any, Any]:
    """An optimizer and its scheduler after some steps."""
    optimizer = sgd(lr)
    scheduler: Any = kind(optimizer, **options)
    for _ in range(steps):
        optimizer.step()
        scheduler.step()
    return optimizer, scheduler


@pytest.mark.parametrize(
    ("kind", "before", "now"),
    [
        (StepLR, {"step_size": 2, "gamma": 0.5}, {"step_size": 3, "gamma": 0.1}),
        (CosineAnnealingLR, {"T_max": 5}, {"T_max": 20}),  # after 5 steps the old one is at zero
    ],
)
def test_another_schedule_is_where_it_would_be(kind: Any, before: Any, now: Any) -> None:
    reference, expected = after(5, kind, **now)
    carried = after(5, kind, **before)[1].state_dict()
    optimizer, scheduler = after(0, kind, **now)
    built = [scheduler.state_dict()]
    scheduler.load_state_dict(carried)
    trainer = trainer_with(optimizer, scheduler)
    ChangedArguments(new_schedule=True).apply(trainer, built)
    for _ in range(6):
        assert optimizer.param_groups[0]["lr"] == pytest.approx(reference.param_groups[0]["lr"])
        assert scheduler.get_last_lr() == pytest.approx(expected.get_last_lr())
        for stepped in (optimizer, scheduler, reference, expected):
            stepped.step()


def test_another_lr_keeps_the_place_in_the_schedule() -> None:
    reference, expected = after(3, StepLR, lr=0.4, step_size=2)
    optimizer, scheduler = after(3, StepLR, lr=0.1, step_size=2)
    ChangedArguments({"lr": (0.1, 0.4)}).apply(trainer_with(optimizer, scheduler), [])
    assert optimizer.param_groups[0]["lr"] == pytest.approx(reference.param_groups[0]["lr"])
    assert scheduler.base_lrs == pytest.approx(expected.base_lrs)


def test_a_group_with_a_value_of_its_own_keeps_it() -> None:
    """Parameter groups without decay stay without."""
    parameters = [torch.nn.Parameter(torch.zeros(2)) for _ in range(2)]
    groups: list[dict[str, Any]] = [
        {"params": parameters[:1]},
        {"params": parameters[1:], "weight_decay": 0.0},
    ]
    optimizer = torch.optim.SGD(groups, lr=0.1, weight_decay=0.01)
    trainer = trainer_with(optimizer, StepLR(optimizer, 2))
    ChangedArguments({"weight_decay": (0.01, 0.5)}).apply(trainer, [])
    assert [group["weight_decay"] for group in optimizer.param_groups] == [0.5, 0.0]
