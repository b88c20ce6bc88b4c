"""Every option of conf/optimizer is torch's own (Muon: ours over torch's own) and learns."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import torch
from hydra.utils import instantiate
from omegaconf import DictConfig, OmegaConf
from torch import nn

from assay.compose.compose import job_config
from assay.optimizer.muon import Muon

if TYPE_CHECKING:
    from collections.abc import Callable

CONF = Path(__file__).parents[2] / "conf" / "optimizer"
STOCK: dict[str, Callable[[list[nn.Parameter]], torch.optim.Optimizer]] = {
    "sgd": lambda p: torch.optim.SGD(p, 0.1, momentum=0.9, weight_decay=5e-4, nesterov=True, fused=True),
    "adam": lambda p: torch.optim.Adam(p, lr=1e-3, fused=True),
    "adamw": lambda p: torch.optim.AdamW(p, lr=1e-3, weight_decay=1e-2, fused=True),
    "rmsprop": lambda p: torch.optim.RMSprop(p, lr=1e-3),
    "adagrad": lambda p: torch.optim.Adagrad(p, lr=1e-2, fused=True),
    "lbfgs": lambda p: torch.optim.LBFGS(
        p, lr=1, max_iter=10, history_size=10, line_search_fn="strong_wolfe"
    ),
    "muon": lambda p: Muon(p, lr=1e-3),
}


def made(option: str) -> Callable[[list[nn.Parameter]], torch.optim.Optimizer]:
    """What a job on the CPU steps with."""
    job = OmegaConf.create(
        {"optimizer": OmegaConf.load(CONF / f"{option}.yaml"), "trainer": {"accelerator": "cpu"}}
    )
    return instantiate(job_config(job).optimizer, _convert_="all")  # type: ignore[no-any-return]  # a partial


def learn(make: Callable[[list[nn.Parameter]], torch.optim.Optimizer]) -> tuple[list[float], torch.Tensor]:
    """Fit a small network for ten steps; returns the losses and the weights at the end."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 1))
    inputs, targets = torch.randn(32, 6), torch.randn(32, 1)
    optimizer = make(list(model.parameters()))

    def closure() -> float:
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(inputs), targets)
        loss.backward()  # type: ignore[no-untyped-call]  # torch leaves it untyped
        return loss.item()

    losses = [optimizer.step(closure) for _ in range(10)]
    return losses, nn.utils.parameters_to_vector(model.parameters())


def test_every_option_is_tried() -> None:
    assert {path.stem for path in CONF.glob("*.yaml")} == STOCK.keys()


@pytest.mark.parametrize("option", STOCK)
def test_learns_bit_for_bit_as_the_class_it_names(option: str) -> None:
    make = made(option)
    losses, weights = learn(make)
    expected_losses, expected = learn(STOCK[option])
    assert losses == expected_losses
    assert torch.equal(weights, expected)
    assert losses[-1] < losses[0]


@pytest.mark.parametrize("option", STOCK)
def test_its_state_is_plain(option: str, tmp_path: Path) -> None:
    make = made(option)
    kept: list[torch.optim.Optimizer] = []

    def remember(parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
        kept.append(make(parameters))
        return kept[-1]

    learn(remember)
    torch.save(kept[0].state_dict(), tmp_path / "optimizer.pt")
    loaded = torch.load(tmp_path / "optimizer.pt", weights_only=True)
    assert loaded["param_groups"] == kept[0].state_dict()["param_groups"]


@pytest.mark.parametrize("option", STOCK)
def test_numbers_are_numbers(option: str) -> None:
    text = (CONF / f"{option}.yaml").read_text()
    config = OmegaConf.load(CONF / f"{option}.yaml")
    assert isinstance(config, DictConfig)
    assert isinstance(config["lr"], float) or config["lr"] == "auto"
    assert {key for key, value in config.items() if isinstance(value, str)} <= {
        *("_target_", "line_search_fn", "adjust_lr_fn", "fused", "lr", "weight_decay")
    }
    assert text.startswith("# ")
