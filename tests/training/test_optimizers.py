"""Every optimizer and every set of parameter groups trains for real."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch

from assay.compose.listing import list_options

if TYPE_CHECKING:
    from tests.conftest import Train

CLASSES = {
    "sgd": "torch.optim.sgd.SGD",
    "adam": "torch.optim.adam.Adam",
    "adamw": "torch.optim.adamw.AdamW",
    "rmsprop": "torch.optim.rmsprop.RMSprop",
    "adagrad": "torch.optim.adagrad.Adagrad",
    "lbfgs": "torch.optim.lbfgs.LBFGS",
    "muon": "assay.optimizer.muon.Muon",
}


def test_every_option_is_trained() -> None:
    assert {option.name for option in list_options("optimizer")} == set(CLASSES)
    assert {option.name for option in list_options("param_groups")} == {"all", "no_decay", "layer_decay"}


@pytest.mark.always("sgd", "lbfgs", "muon")
@pytest.mark.parametrize("optimizer", CLASSES)
def test_loss_falls(train: Train, optimizer: str) -> None:
    extra = {
        "lbfgs": ["model=linear", "trainer.limit_train_batches=5"],  # many evaluations a step
        "muon": ["model=mlp", "optimizer.lr=0.01"],
    }.get(optimizer, ["model=mlp"])
    run = train("data=digits", "scheduler=none", f"optimizer={optimizer}", *extra)
    used = run.trainer.optimizers[0]
    assert f"{type(used).__module__}.{type(used).__qualname__}" == CLASSES[optimizer]
    assert run.watch.falls(0.8), run.watch.losses
    lr = run.config.optimizer.lr
    steps = len(run.watch.lrs)
    assert run.watch.lrs == [[lr] * len(used.param_groups)] * steps
    assert steps == run.config.spec.total_steps == run.trainer.global_step
    assert run.result.metrics["val/accuracy"] > 0.3


def names_by_group(run: Any) -> dict[str, set[str]]:
    names = {id(p): name for name, p in run.module.model.named_parameters()}
    groups = run.trainer.optimizers[0].param_groups
    found = {group["name"]: {names[id(p)] for p in group["params"]} for group in groups}
    every = [name for group in found.values() for name in group]
    assert sorted(every) == sorted(names.values()), "each parameter in exactly one group"
    return found


def test_no_decay_decays_only_the_matrices(train: Train) -> None:
    """The first step of plain SGD: p - lr * (g + weight_decay * p), with weight_decay for matrices alone."""
    plain, decayed = (
        train(
            *("data=digits", "model=linear", "param_groups=no_decay", "scheduler=none", "optimizer=sgd"),
            *("optimizer.nesterov=false", "optimizer.momentum=0", "trainer.limit_train_batches=1"),
            f"optimizer.weight_decay={weight_decay}",
        )
        for weight_decay in (0.0, 0.5)
    )
    before = decayed.watch.first_weights
    assert torch.equal(plain.weights["model.1.bias"], decayed.weights["model.1.bias"])
    difference = plain.weights["model.1.weight"] - decayed.weights["model.1.weight"]
    torch.testing.assert_close(difference, 0.1 * 0.5 * before["model.1.weight"], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
def test_layer_decay_lowers_lr_towards_the_input(train: Train, optimizer: str) -> None:
    run = train(
        *("data=digits", "model=mlp", "model.hidden=[32,16]", "param_groups=layer_decay", "scheduler=cosine"),
        *(f"optimizer={optimizer}", "optimizer.lr=0.01", "callbacks=[lr_monitor]"),
        "trainer.limit_train_batches=4",
    )
    half = ("/muon", "/adamw") if optimizer == "muon" else ("",)
    parameters = [name for name, _ in run.module.model.named_parameters()]
    layers = list(dict.fromkeys(name.rpartition(".")[0] for name in parameters))
    assert len(layers) == 3
    found = names_by_group(run)
    for distance, layer in enumerate(reversed(layers)):
        members = {name for suffix in half for name in found[f"default/{distance}_from_head{suffix}"]}
        assert members == {f"{layer}.weight", f"{layer}.bias"}
    # The schedule multiplies every group's own lr by the same factor.
    factors = [
        (1 + torch.cos(torch.tensor(torch.pi * step / 4, dtype=torch.float64)).item()) / 2
        for step in range(4)
    ]
    groups = run.trainer.optimizers[0].param_groups
    for index, group in enumerate(groups):
        distance = int(group["name"].partition("/")[2].partition("_")[0])
        expected = [0.01 * 0.75**distance * factor for factor in factors]
        assert [lrs[index] for lrs in run.watch.lrs] == pytest.approx(expected)
        column = next(name for name in run.rows[0] if name.startswith("lr-") and name.endswith(group["name"]))
        assert run.column(column) == pytest.approx(expected, rel=1e-6)
