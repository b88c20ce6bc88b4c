"""Optimizers step as torch's own do."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch
from hydra.utils import instantiate
from omegaconf import OmegaConf
from torch import Tensor, nn
from torchmetrics import MetricCollection

from assay.compose.compose import job_config
from assay.errors import ConfigError
from assay.module import Module
from assay.optimizer.fused_layout import keep_layout
from assay.optimizer.muon import Muon
from assay.optimizer.parameter_groups import ParameterGroups
from assay.task.classification import Multiclass

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch.optim.lr_scheduler import LRScheduler


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
    assert {*STOCK} == {path.stem for path in CONF.glob("*.yaml")}


@pytest.mark.parametrize("option", STOCK)
def test_learns_bit_for_bit_as_the_class_it_names(option: str) -> None:
    make = made(option)
    losses, weights = learn(make)
    expected_losses, expected = learn(STOCK[option])
    assert losses == expected_losses
    assert torch.equal(weights, expected)
    assert losses[-1] < losses[0]


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, 4, 3),
        nn.BatchNorm2d(4),
        nn.Flatten(),
        nn.Linear(4 * 36, 16),
        nn.ReLU(),
        nn.Linear(16, 3),
    )


def backward(model: nn.Module, step: int) -> float:
    generator = torch.Generator().manual_seed(step)
    inputs = torch.randn(8, 1, 8, 8, generator=generator)
    targets = torch.randint(3, (8,), generator=generator)
    model.zero_grad()
    loss = nn.functional.cross_entropy(model(inputs), targets)
    loss.backward()  # type: ignore[no-untyped-call]  # torch leaves it untyped
    return loss.item()


def train(model: nn.Module, optimizers: list[torch.optim.Optimizer], steps: range) -> None:
    for step in steps:
        backward(model, step)
        for optimizer in optimizers:
            optimizer.step()


def stock(model: nn.Module, lr: float = 0.01) -> list[torch.optim.Optimizer]:
    matrices = [parameter for parameter in model.parameters() if parameter.ndim == 2]
    others = [parameter for parameter in model.parameters() if parameter.ndim != 2]
    return [
        torch.optim.Muon(matrices, lr=lr, weight_decay=0.2, adjust_lr_fn="match_rms_adamw"),
        torch.optim.AdamW(others, lr=lr, weight_decay=0.2, betas=(0.9, 0.95)),
    ]


def same(left: nn.Module, right: nn.Module) -> bool:
    pairs = zip(left.state_dict().values(), right.state_dict().values(), strict=True)
    return all(torch.equal(a, b) for a, b in pairs)


def test_equals_them_under_a_schedule() -> None:
    def schedule(optimizer: torch.optim.Optimizer) -> LRScheduler:
        return torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 / (1 + step))

    ours, reference = network(), network()
    muon = Muon(ours.parameters(), lr=0.01, weight_decay=0.2)
    pair = stock(reference)
    schedules = [schedule(optimizer) for optimizer in (muon, *pair)]
    for step in range(8):
        train(ours, [muon], range(step, step + 1))
        train(reference, pair, range(step, step + 1))
        for scheduler in schedules:
            scheduler.step()
    assert same(ours, reference)
    assert [group["lr"] for group in muon.param_groups] == [pytest.approx(0.01 / 9)] * 2


def test_onecycle_cycles_the_betas() -> None:
    model = network()
    optimizer = Muon(model.parameters(), lr=0.01)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.1, total_steps=10)
    seen = []
    for step in range(10):
        train(model, [optimizer], range(step, step + 1))
        seen.append([(group["lr"], group["betas"][0]) for group in optimizer.param_groups])
        scheduler.step()
    assert max(lr for row in seen for lr, _ in row) == pytest.approx(0.1)
    assert min(beta for row in seen for _, beta in row) == pytest.approx(0.85)


def test_goes_on_bit_for_bit_from_a_checkpoint(tmp_path: Path) -> None:
    whole, first = network(), network()
    train(whole, [Muon(whole.parameters(), lr=0.01)], range(10))
    optimizer = Muon(first.parameters(), lr=0.01)
    train(first, [optimizer], range(5))
    torch.save({"model": first.state_dict(), "optimizer": optimizer.state_dict()}, tmp_path / "last.pt")

    saved = torch.load(tmp_path / "last.pt", weights_only=True)
    second = network()
    second.load_state_dict(saved["model"])
    # The options of the checkpoint count, as with torch's own.
    resumed = Muon(second.parameters(), lr=123.0, momentum=0.1)
    resumed.load_state_dict(saved["optimizer"])
    train(second, [resumed], range(5, 10))
    assert same(second, whole)


def test_groups_keep_their_options_and_their_order() -> None:
    model = network()
    head, rest = [*model[5].parameters()], [*model[:5].parameters()]
    optimizer = Muon(
        [
            {"params": rest, "name": "body", "lr": 0.5, "eps": 1e-4},
            {"params": head, "name": "head", "use_muon": False, "weight_decay": 0.0},
        ],
        lr=0.01,
    )
    seen = [
        (
            group["name"],
            group["use_muon"],
            len(group["params"]),
            group["lr"],
            group["weight_decay"],
            group["eps"],
        )
        for group in optimizer.param_groups
    ]
    assert seen == [
        ("body/muon", True, 1, 0.5, 0.1, 1e-7),
        ("body/adamw", False, 5, 0.5, 0.1, 1e-4),
        ("head/adamw", False, 2, 0.01, 0.0, 1e-8),
    ]
    train(model, [optimizer], range(2))
    assert {tuple(sorted(optimizer.state[parameter])) for parameter in head} == {
        ("exp_avg", "exp_avg_sq", "step")
    }
    assert tuple(optimizer.state[model.get_parameter("3.weight")]) == ("momentum_buffer",)


def test_calls_a_closure_once_with_gradients_and_returns_its_loss() -> None:
    ours, reference = network(), network()
    optimizer = Muon(ours.parameters(), lr=0.01, weight_decay=0.2)
    calls = []

    def closure() -> float:
        assert torch.is_grad_enabled()
        calls.append(backward(ours, 0))
        return calls[-1]

    assert optimizer.step(closure) == calls[0]
    assert len(calls) == 1
    train(reference, stock(reference), range(1))
    assert same(ours, reference)


KINDS: dict[str, dict[str, Any]] = {
    "Adagrad": {"lr": 0.1},
    "Adam": {"lr": 0.1, "amsgrad": True},
    "AdamW": {"lr": 0.1},
    "SGD": {"lr": 0.1, "momentum": 0.9},
}

SHAPE = (4, 3, 2, 2)


def gradients(steps: int) -> list[Tensor]:
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(SHAPE, generator=generator) for _ in range(steps)]


def make(kind: str, weight: Tensor, *, fused: bool | None) -> tuple[nn.Parameter, torch.optim.Optimizer]:
    parameter = nn.Parameter(weight.detach().clone(memory_format=torch.preserve_format))
    optimizer = getattr(torch.optim, kind)([parameter], fused=fused, **KINDS[kind])
    keep_layout(optimizer)
    return parameter, optimizer


def step(parameter: nn.Parameter, optimizer: torch.optim.Optimizer, given: list[Tensor]) -> None:
    for gradient in given:
        parameter.grad = torch.empty_like(parameter).copy_(gradient)
        optimizer.step()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("before", [True, None])
def test_goes_on_from_the_state_of_another_kernel_and_memory_format(kind: str, before: bool | None) -> None:
    first, second = gradients(4)[:2], gradients(4)[2:]
    weight = torch.randn(SHAPE, generator=torch.Generator().manual_seed(1))
    expected, optimizer = make(kind, weight, fused=None)
    step(expected, optimizer, [*first, *second])

    one, optimizer = make(kind, weight, fused=before)
    step(one, optimizer, first)
    state = optimizer.state_dict()
    other, going_on = make(kind, one.detach().to(memory_format=torch.channels_last), fused=True)
    going_on.load_state_dict(state)
    going_on.param_groups[0]["fused"] = True
    step(other, going_on, second)
    torch.testing.assert_close(other, expected, rtol=1e-5, atol=1e-6)
    kept = [value for value in going_on.state[other].values() if value.shape == SHAPE]
    assert kept
    assert all(value.stride() == other.stride() for value in kept)


def test_gradients_that_lie_differently_are_refused() -> None:
    parameter, optimizer = make("AdamW", torch.zeros(SHAPE), fused=True)
    parameter.grad = torch.ones(SHAPE).to(memory_format=torch.channels_last)
    with pytest.raises(ConfigError, match="lie differently in memory") as raised:
        optimizer.step()
    assert raised.value.key == "optimizer.fused"
    assert not parameter.any()


class TiedText(nn.Module):
    """An embedding, a hidden matrix, and a head that is the embedding again."""

    head_names = ("head",)

    def __init__(self, *, tied: bool) -> None:
        super().__init__()
        self.embedding = nn.Embedding(5, 4)
        self.hidden = nn.Linear(4, 4)
        self.head = nn.Linear(4, 5)
        if tied:
            self.head.weight = self.embedding.weight


@pytest.mark.parametrize("tied", [False, True])
def test_embeddings_and_the_head_are_not_muons(tied: bool) -> None:
    model = TiedText(tied=tied)
    names = {id(parameter): name for name, parameter in model.named_parameters()}

    def muons(**rule: Any) -> set[str]:
        groups = ParameterGroups([{"max_ndim": 9, "name": "all", **rule}])
        module = Module(
            model=model,
            task=Multiclass(),
            loss=nn.CrossEntropyLoss(),
            optimizer=partial(Muon, lr=0.01),
            metrics={stage: MetricCollection({}) for stage in ("train", "eval")},
            param_groups=groups,
        )
        optimizer: Any = module.configure_optimizers()
        taken = [names[id(p)] for group in optimizer.param_groups for p in group["params"]]
        assert sorted(taken) == sorted(names.values())
        assert len({group["name"] for group in optimizer.param_groups}) == len(optimizer.param_groups)
        return {names[id(p)] for g in optimizer.param_groups if g["use_muon"] for p in g["params"]}

    assert muons() == {"hidden.weight"}
    ends = {"embedding.weight"} if tied else {"embedding.weight", "head.weight"}
    assert muons(use_muon=True) == {"hidden.weight"} | ends
