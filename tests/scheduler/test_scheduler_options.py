"""The learning rates of every option of conf/scheduler against its formula, with a checkpoint midway."""

from __future__ import annotations

import io
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from hydra.utils import instantiate
from omegaconf import DictConfig, OmegaConf
from torch import nn

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

CONF = Path(__file__).parents[2] / "conf" / "scheduler"
TOTAL = 120
LRS = (0.4, 0.02)  # two parameter groups
OPTIONS = sorted(path.stem for path in CONF.glob("*.yaml"))
PLACES = {"interval", "frequency", "monitor"}


def build(option: str, lrs: Sequence[float] = LRS, **changes: Any) -> tuple[torch.optim.Optimizer, Any]:
    """An optimizer of one parameter group a rate, and the option's scheduler over it."""
    optimizer = torch.optim.SGD(
        [{"params": [nn.Parameter(torch.ones(1))], "lr": lr} for lr in lrs], lr=LRS[0], momentum=0.9
    )
    root = OmegaConf.create(
        {
            "spec": {"total_steps": TOTAL},
            "optimizer": {"lr": LRS[0]},
            "scheduler": OmegaConf.merge(OmegaConf.load(CONF / f"{option}.yaml"), changes),
        }
    )
    node = root.scheduler
    if node.get("mode") == "auto":  # a run settles it by what the metric says of itself
        node.mode = "min"
    arguments = OmegaConf.masked_copy(node, [key for key in node if key not in PLACES])
    arguments._set_parent(root)
    return optimizer, instantiate(arguments, _convert_="all")(optimizer)


def step(optimizer: torch.optim.Optimizer, scheduler: Any, value: float | None = None) -> None:
    optimizer.step()
    if isinstance(scheduler, torch.optim.lr_scheduler.ReduceLROnPlateau):
        assert value is not None
        scheduler.step(value)
    else:
        scheduler.step()


def loss(t: int) -> float:
    """A validation loss that falls for 20 epochs and then no more."""
    return 1.0 / min(t + 1, 20)


def rates(optimizer: torch.optim.Optimizer, scheduler: Any, steps: range) -> list[list[float]]:
    rows = []
    for t in steps:
        rows.append([group["lr"] for group in optimizer.param_groups])
        step(optimizer, scheduler, loss(t))
    return rows


T = np.arange(TOTAL, dtype=np.float64)


def onecycle(t: NDArray[np.float64]) -> NDArray[np.float64]:
    """Two halves of a cosine: up to the peak at 30 % of the steps, down to 1/25/10000 of it at the last."""

    def cosine(start: float, end: float, part: NDArray[np.float64]) -> NDArray[np.float64]:
        return end + (start - end) / 2 * (1 + np.cos(np.pi * part))

    peak, last = 0.3 * TOTAL - 1, TOTAL - 1
    up = cosine(1 / 25, 1, t / peak)
    down = cosine(1, 1 / 25 / 10_000, (t - peak) / (last - peak))
    return np.where(t <= peak, up, down)


def plateau(t: NDArray[np.float64]) -> NDArray[np.float64]:
    """The 20th loss is the last that improves; each 11 that do not are a factor of 10 (to steps of 1e-8)."""
    return np.array([0.1 ** max(0, (int(now) - 20) // 11) for now in t])


# The factor on each group's learning rate in step (or epoch) t.
FACTORS: dict[str, Callable[[NDArray[np.float64]], NDArray[np.float64]]] = {
    "step": lambda t: 0.1 ** (t // 30),
    "multistep": lambda t: 0.1 ** ((t >= 100).astype(float) + (t >= 150)),
    "exponential": lambda t: 0.95**t,
    "cosine": lambda t: (1 + np.cos(np.pi * t / TOTAL)) / 2,
    "warmup_cosine": lambda t: np.where(t < 6, (t + 1) / 7, (1 + np.cos(np.pi * (t - 6) / (TOTAL - 6))) / 2),
    "polynomial": lambda t: 1 - t / TOTAL,
    "inverse_sqrt": lambda t: np.minimum((t + 1) / 4000, np.sqrt(4000 / (t + 1))),
    "onecycle": onecycle,
    "plateau": plateau,
}
SCHEDULES = sorted(FACTORS)


def expected(option: str) -> NDArray[np.float64]:
    # OneCycleLR sets one peak for all groups, whatever their own lr was.
    lrs = [LRS[0]] * 2 if option == "onecycle" else LRS
    rows: NDArray[np.float64] = FACTORS[option](T)[:, None] * np.array(lrs)
    return rows


def test_every_option_is_tried() -> None:
    assert set(OPTIONS) == {"none", *SCHEDULES}
    assert OmegaConf.load(CONF / "none.yaml") == {}


@pytest.mark.parametrize("option", SCHEDULES)
def test_follows_its_formula(option: str) -> None:
    optimizer, scheduler = build(option)
    np.testing.assert_allclose(
        rates(optimizer, scheduler, range(TOTAL)), expected(option), rtol=1e-6, atol=1e-8
    )


@pytest.mark.parametrize("option", SCHEDULES)
def test_goes_on_bit_for_bit_after_37_steps(option: str) -> None:
    whole = rates(*build(option), range(TOTAL))
    optimizer, scheduler = build(option)
    first = rates(optimizer, scheduler, range(37))
    file = io.BytesIO()
    torch.save({"optimizer": optimizer.state_dict(), "scheduler": scheduler.state_dict()}, file)

    file.seek(0)
    saved = torch.load(file, weights_only=True)
    # The checkpoint counts, not what the new ones were made with.
    optimizer, scheduler = build(option, lrs=(5.0, 7.0))
    optimizer.load_state_dict(saved["optimizer"])
    scheduler.load_state_dict(saved["scheduler"])
    assert first + rates(optimizer, scheduler, range(37, TOTAL)) == whole


@pytest.mark.parametrize("option", ["warmup_cosine", "inverse_sqrt"])
def test_the_state_of_our_factors_is_plain(option: str) -> None:
    _, scheduler = build(option)
    for state in scheduler.state_dict()["lr_lambdas"]:
        assert state
        assert all(type(value) in {int, float} for value in state.values())


@pytest.mark.parametrize(
    ("option", "changes", "factor"),
    [
        ("step", {"step_size": 7, "gamma": 0.5}, lambda t: 0.5 ** (t // 7)),
        (
            "multistep",
            {"milestones": [3, 5], "gamma": 0.5},
            lambda t: 0.5 ** ((t >= 3).astype(float) + (t >= 5)),
        ),
        ("polynomial", {"power": 2.0, "total_iters": 60}, lambda t: np.clip(1 - t / 60, 0, None) ** 2),
        (
            "inverse_sqrt",
            {"lr_lambda": {"warmup_steps": 9}},
            lambda t: np.minimum((t + 1) / 9, 3 / np.sqrt(t + 1)),
        ),
        (
            "warmup_cosine",
            {"lr_lambda": {"warmup_steps": 20, "min_factor": 0.1}},
            lambda t: np.where(t < 20, (t + 1) / 21, 0.1 + 0.45 * (1 + np.cos(math.pi * (t - 20) / 100))),
        ),
    ],
)
def test_its_keys_can_be_overridden(
    option: str, changes: dict[str, Any], factor: Callable[[NDArray[np.float64]], NDArray[np.float64]]
) -> None:
    optimizer, scheduler = build(option, **changes)
    wanted = factor(T)[:, None] * np.array(LRS)
    np.testing.assert_allclose(rates(optimizer, scheduler, range(TOTAL)), wanted, rtol=1e-6, atol=1e-12)


@pytest.mark.parametrize("option", SCHEDULES)
def test_says_when_it_steps(option: str) -> None:
    config = OmegaConf.load(CONF / f"{option}.yaml")
    assert isinstance(config, DictConfig)
    per_step = {"cosine", "warmup_cosine", "onecycle", "polynomial", "inverse_sqrt"}
    assert config.interval == ("step" if option in per_step else "epoch")
    assert config.frequency == 1
    assert config.monitor == ("val/loss" if option == "plateau" else None)
    assert str(config._target_).startswith("torch.optim.lr_scheduler.")
    assert config._partial_ is True


def test_onecycle_cycles_the_momentum() -> None:
    optimizer, scheduler = build("onecycle")
    seen = []
    for t in range(TOTAL):
        seen.append(optimizer.param_groups[0]["momentum"])
        step(optimizer, scheduler, loss(t))
    assert (max(seen), min(seen)) == (pytest.approx(0.95), pytest.approx(0.85))
    assert int(np.argmin(seen)) == 35
