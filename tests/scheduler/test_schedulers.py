"""The learning rates of every option of conf/scheduler, with a checkpoint midway."""

from __future__ import annotations

import io
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from hydra.utils import instantiate
from hypothesis import given
from hypothesis import strategies as st
from omegaconf import OmegaConf
from torch import nn

from assay.scheduler.inverse_sqrt import InverseSqrt
from assay.scheduler.warmup_cosine import WarmupCosine

if TYPE_CHECKING:
    from collections.abc import Sequence


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


SCHEDULES = [option for option in OPTIONS if option != "none"]


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


@st.composite
def schedules(draw: st.DrawFn) -> tuple[int, int, float]:
    total = draw(st.integers(1, 10_000))
    return total, draw(st.integers(0, total - 1)), draw(st.floats(0, 1))


@given(schedules())
def test_follows_its_formula_everywhere(schedule: tuple[int, int, float]) -> None:
    total, warmup, minimum = schedule
    factor = WarmupCosine(total, warmup_steps=warmup, min_factor=minimum)
    steps = np.unique(np.linspace(0, total + 10, 50).astype(int))
    phase = np.clip((steps - warmup) / (total - warmup), 0, 1)
    cosine = minimum + (1 - minimum) * np.cos(np.pi * phase / 2) ** 2  # (1 + cos x) / 2 by the half angle
    wanted = np.where(steps < warmup, (steps + 1) / (warmup + 1), cosine)
    np.testing.assert_allclose([factor(int(step)) for step in steps], wanted, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"total_steps": 0}, "total_steps=.* >= 1"),
        ({"total_steps": -1}, "total_steps=.* >= 1"),
        ({"total_steps": 10, "warmup_steps": 10}, r"in \[0, 10\)"),
        ({"total_steps": 10, "warmup_steps": -1}, "warmup_steps=-1"),
        ({"total_steps": 10, "warmup_fraction": 1.0}, r"\[0, 1\)"),
        ({"total_steps": 10, "min_factor": 1.5}, r"\[0, 1\]"),
    ],
)
def test_refuses_what_means_nothing(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        WarmupCosine(**arguments)


@given(st.integers(1, 10_000), st.integers(0, 100_000), st.sampled_from([1, 512]))
def test_is_the_paper_s_schedule_up_to_its_peak(warmup: int, step: int, d_model: int) -> None:
    """Vaswani et al. 2017, equation 3, with steps counted from 1."""

    def paper(number: int) -> float:
        return float(d_model**-0.5 * min(number**-0.5, number * warmup**-1.5))

    wanted = paper(step + 1) / paper(warmup)
    np.testing.assert_allclose(InverseSqrt(warmup)(step), wanted, rtol=1e-9)
    assert InverseSqrt(warmup)(warmup - 1) == 1.0
