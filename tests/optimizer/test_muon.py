from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import lightning
import pytest
import torch
from lightning.pytorch.callbacks import LearningRateMonitor
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

from assay.optimizer.muon import Muon

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from torch.optim.lr_scheduler import LRScheduler


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


def test_equals_the_two_stock_optimizers_side_by_side() -> None:
    ours, reference, untrained = network(), network(), network()
    train(ours, [Muon(ours.parameters(), lr=0.01, weight_decay=0.2)], range(12))
    train(reference, stock(reference), range(12))
    assert same(ours, reference)
    assert not same(ours, untrained)


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


def test_after_loading_a_schedule_still_reaches_both_halves() -> None:
    model = network()
    optimizer = Muon(model.parameters(), lr=0.01)
    train(model, [optimizer], range(2))
    optimizer.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    for group in optimizer.param_groups:
        group["lr"] = 0.0
    before = copy.deepcopy([*model.parameters()])
    train(model, [optimizer], range(2, 4))
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))


def test_a_deep_copy_steps_its_own_parameters() -> None:
    model, reference = network(), network()
    optimizer = Muon(model.parameters(), lr=0.01, eps=1e-6)
    train(model, [optimizer], range(3))
    copied_model, copied = copy.deepcopy((model, optimizer))
    before = copy.deepcopy(model.state_dict())
    train(copied_model, [copied], range(3, 6))
    assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())
    train(reference, [Muon(reference.parameters(), lr=0.01, eps=1e-6)], range(6))
    assert same(copied_model, reference)


def test_an_own_state_put_in_place_is_used() -> None:
    ours, reference = network(), network()
    optimizer = Muon(ours.parameters(), lr=0.01, weight_decay=0.2)
    train(ours, [optimizer], range(2))
    optimizer.state = copy.copy(optimizer.state)
    train(ours, [optimizer], range(2, 4))
    train(reference, stock(reference), range(4))
    assert same(ours, reference)
    assert len(optimizer.state) == len([*ours.parameters()])


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


def test_a_group_added_later_is_stepped() -> None:
    ours, reference = network(), network()
    optimizer = Muon(ours[:5].parameters(), lr=0.01, weight_decay=0.2)
    train(ours, [optimizer], range(2))
    optimizer.add_param_group({"params": ours[5].parameters()})
    train(ours, [optimizer], range(2, 4))

    first = stock(reference[:5])
    train(reference, first, range(2))
    train(reference, [*first, *stock(reference[5])], range(2, 4))
    assert same(ours, reference)


@pytest.mark.parametrize("kind", ["matrices", "others", "named"])
def test_takes_one_kind_alone_and_named_parameters(kind: str) -> None:
    model = network()
    before = [parameter.detach().clone() for parameter in model.parameters()]
    parameters: Any = (
        model.named_parameters()
        if kind == "named"
        else [parameter for parameter in model.parameters() if (parameter.ndim == 2) == (kind == "matrices")]
    )
    optimizer = Muon(parameters, lr=0.01)
    train(model, [optimizer], range(1))
    changed = [not torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True)]
    expected = [
        kind == "named" or (parameter.ndim == 2) == (kind == "matrices") for parameter in model.parameters()
    ]
    assert changed == expected


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


@pytest.mark.parametrize(
    "options",
    [
        {"lr": -1.0},
        {"momentum": -1.0},
        {"weight_decay": -1.0},
        {"betas": (0.9, 1.0)},
        {"eps": -1.0},
        {"adjust_lr_fn": "x"},
    ],
    ids=str,
)
def test_refuses_what_torch_refuses(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"."):
        Muon(network().parameters(), **options)


def test_steps_fake_tensors() -> None:
    with FakeTensorMode():
        model = network()
        optimizer = Muon(model.parameters())
        model(torch.zeros(2, 1, 8, 8)).sum().backward()
        optimizer.step()
    assert optimizer.state[model.get_parameter("3.weight")]["momentum_buffer"].shape == (16, 144)


class Task(lightning.LightningModule):
    def __init__(self, make: Callable[[nn.Module], torch.optim.Optimizer]) -> None:
        super().__init__()
        self.model = network()
        self.make = make

    def training_step(self, batch: list[torch.Tensor], _: int) -> torch.Tensor:
        return nn.functional.cross_entropy(self.model(batch[0]), batch[1])

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return self.make(self.model)


# Lightning's own: it touches a class that torch deprecated, and asks for workers where there are many cores.
@pytest.mark.filterwarnings("ignore:`isinstance:FutureWarning", "ignore:.*many workers")
def test_trains_and_resumes_under_lightning(tmp_path: Path) -> None:
    generator = torch.Generator().manual_seed(0)
    data = torch.utils.data.TensorDataset(
        torch.randn(24, 1, 8, 8, generator=generator), torch.randint(3, (24,), generator=generator)
    )

    def fit(epochs: int, checkpoint: Path | None = None) -> tuple[Task, lightning.Trainer]:
        task = Task(lambda model: Muon([{"params": model.parameters(), "name": "all"}], lr=0.01))
        trainer = lightning.Trainer(
            accelerator="cpu",
            max_epochs=epochs,
            logger=lightning.pytorch.loggers.CSVLogger(tmp_path),
            callbacks=[LearningRateMonitor()],
            enable_progress_bar=False,
            enable_model_summary=False,
            enable_checkpointing=False,
            gradient_clip_val=1.0,
            log_every_n_steps=1,
        )
        trainer.fit(
            task, torch.utils.data.DataLoader(data, batch_size=8), ckpt_path=checkpoint, weights_only=True
        )
        return task, trainer

    whole, _ = fit(2)
    _, trainer = fit(1)
    trainer.save_checkpoint(tmp_path / "last.ckpt")
    resumed, _ = fit(2, tmp_path / "last.ckpt")
    assert same(resumed, whole)
