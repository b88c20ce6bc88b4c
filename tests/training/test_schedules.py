"""Every scheduler in a real run: the learning rate of each optimizer step against its formula."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pytest

from assay.compose.listing import list_options

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray
    from tests.conftest import Train

    Numbers = NDArray[np.float64]

BATCHES, EPOCHS, LR = 5, 3, 0.05
TOTAL = BATCHES * EPOCHS
BASE = (
    *("data=digits", "model=linear", "optimizer=sgd", f"optimizer.lr={LR}", "callbacks=[lr_monitor]"),
    *(f"trainer.max_epochs={EPOCHS}", "data.batch_size=32"),
)


class Times(NamedTuple):
    """Of each optimizer step: its number and its epoch, from 0; and the number of all steps."""

    step: Numbers
    epoch: Numbers
    total: int


def onecycle(t: Numbers, total: int) -> Numbers:
    def cosine(start: float, end: float, part: Numbers) -> Numbers:
        return end + (start - end) / 2 * (1 + np.cos(np.pi * part))

    peak, last = 0.3 * total - 1, total - 1
    up, down = cosine(1 / 25, 1, t / peak), cosine(1, 1 / 25e4, (t - peak) / (last - peak))
    return np.where(t <= peak, up, down)


def half_cosine(part: Numbers) -> Numbers:
    return (1 + np.cos(np.pi * part)) / 2


# (overrides, the factor on the learning rate as a function of optimizer step, epoch and total steps)
SCHEDULES: dict[str, tuple[list[str], Callable[[Times], Numbers]]] = {
    "none": ([], lambda at: np.ones_like(at.step)),
    "step": (["scheduler.step_size=2", "scheduler.gamma=0.5"], lambda at: 0.5 ** (at.epoch // 2)),
    "multistep": (
        ["scheduler.milestones=[1,2]", "scheduler.gamma=0.3"],
        lambda at: 0.3 ** ((at.epoch >= 1).astype(float) + (at.epoch >= 2)),
    ),
    "exponential": ([], lambda at: 0.95**at.epoch),
    "cosine": (
        ["scheduler.eta_min=0.01"],
        lambda at: 0.2 + 0.8 * half_cosine(at.step / at.total),  # 0.2 = eta_min / lr
    ),
    "polynomial": (["scheduler.power=2.0"], lambda at: (1 - at.step / at.total) ** 2),
    "inverse_sqrt": (
        ["scheduler.lr_lambda.warmup_steps=4"],
        lambda at: np.minimum((at.step + 1) / 4, 2 / np.sqrt(at.step + 1)),
    ),
    "warmup_cosine": (
        ["scheduler.lr_lambda.warmup_steps=2", "scheduler.lr_lambda.min_factor=0.1"],
        lambda at: np.where(
            at.step < 2,
            (at.step + 1) / 3,
            0.1 + 0.9 * half_cosine(np.clip((at.step - 2) / (at.total - 2), 0, 1)),
        ),
    ),
    "onecycle": ([], lambda at: onecycle(at.step, at.total)),
}


def test_every_option_is_trained() -> None:
    assert {option.name for option in list_options("scheduler")} == {*SCHEDULES, "plateau"}


ACCUMULATED = ("cosine", "exponential", "onecycle", "warmup_cosine")


@pytest.mark.always("none-1", "exponential-2", "onecycle-1", "warmup_cosine-2")
@pytest.mark.parametrize(
    ("scheduler", "accumulate"), [*((name, 1) for name in SCHEDULES), *((name, 2) for name in ACCUMULATED)]
)
def test_lr_of_each_step(train: Train, scheduler: str, accumulate: int) -> None:
    overrides, factor = SCHEDULES[scheduler]
    run = train(
        *BASE,
        *(f"scheduler={scheduler}", *overrides, f"trainer.limit_train_batches={BATCHES}"),
        f"trainer.accumulate_grad_batches={accumulate}",
    )
    steps = -(-BATCHES // accumulate)  # the last batch of an epoch steps, however few were gathered
    total = steps * EPOCHS
    t = np.arange(total, dtype=np.float64)
    expected = LR * factor(Times(t, t // steps, total))
    assert run.config.spec.total_steps == total
    assert run.config.spec.steps_per_epoch == steps
    np.testing.assert_allclose([lrs[0] for lrs in run.watch.lrs], expected, rtol=1e-6, atol=1e-9)
    assert len(run.watch.losses) == TOTAL
    assert run.moved()
    if scheduler == "none":  # Lightning's monitor then logs once per batch, too
        np.testing.assert_allclose(run.column("lr-SGD/default"), LR)
        return
    # The monitor logs as the schedule steps: once per epoch, or once per optimizer step.
    per_epoch = run.config.scheduler.interval == "epoch"
    wanted = expected[::steps] if per_epoch else expected
    np.testing.assert_allclose(run.column("lr-SGD/default"), wanted, rtol=1e-6, atol=1e-9)


@pytest.mark.always("overrides1-reduced1", "overrides3-reduced3")
@pytest.mark.parametrize(
    ("overrides", "reduced"),
    [
        (["scheduler.threshold=0.99", "scheduler.patience=0"], [1, 1, 0.1, 0.01]),
        (["scheduler.threshold=0.99", "scheduler.patience=1"], [1, 1, 1, 0.1]),
        (["scheduler.threshold=0.0", "scheduler.patience=0"], [1, 1, 1, 1]),
        (["scheduler.mode=force_max", "scheduler.patience=0"], [1, 1, 0.1, 0.01]),
        (["scheduler.monitor=val/accuracy", "scheduler.mode=max", "scheduler.threshold=0"], [1, 1, 1, 1]),
    ],
)
def test_plateau_follows_what_it_monitors(train: Train, overrides: list[str], reduced: list[float]) -> None:
    """val/loss falls in each epoch: a plateau only where 99 % is asked for, or where it should rise."""
    run = train(
        *BASE, "scheduler=plateau", "trainer.limit_train_batches=5", *overrides, "trainer.max_epochs=4"
    )
    losses = run.column("val/loss")
    assert losses == sorted(losses, reverse=True)
    assert len(set(losses)) == 4
    assert losses[1] > 0.01 * losses[0]
    expected = LR * np.repeat(reduced, BATCHES)
    np.testing.assert_allclose([lrs[0] for lrs in run.watch.lrs], expected, rtol=1e-6)


@pytest.mark.always("overrides1-40-80", "overrides3-2-4", "overrides5-3-8")
@pytest.mark.parametrize(
    ("overrides", "per_epoch", "total"),
    [
        ([], 39, 78),  # 1,257 // 32
        (["data.drop_last=false"], 40, 80),
        (["trainer.limit_train_batches=0.25"], 9, 18),
        (["trainer.limit_train_batches=7.0", "trainer.accumulate_grad_batches=4"], 2, 4),
        (["trainer.limit_train_batches=7", "trainer.max_steps=9"], 7, 9),
        (["trainer.limit_train_batches=3", "trainer.max_epochs=-1", "trainer.max_steps=8"], 3, 8),
        (["trainer.limit_train_batches=1000", "data.batch_size=500"], 3, 6),
    ],
)
def test_the_steps_foreseen_are_the_steps_taken(
    train: Train, overrides: list[str], per_epoch: int, total: int
) -> None:
    run = train(*BASE, "scheduler=polynomial", "trainer.max_epochs=2", *overrides)
    spec = run.config.spec
    assert (spec.steps_per_epoch, spec.total_steps) == (per_epoch, total)
    assert run.trainer.global_step == total == len(run.watch.lrs)
    assert run.watch.lrs[-1][0] == pytest.approx(LR / total)
