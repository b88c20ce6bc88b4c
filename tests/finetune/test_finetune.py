"""What is frozen, unfrozen and adapted."""

from __future__ import annotations

import copy
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch
from tests.interrupting import Interrupt, outcome
from torch import nn
from torchvision.models import resnet18  # type: ignore[import-untyped]  # torchvision ships no types

from assay.errors import ConfigError
from assay.finetune.freeze import Freeze
from assay.finetune.gradual import Gradual
from assay.finetune.interface import freezable_names, hold_statistics
from assay.finetune.lora import LoRA, adapted_names, merge
from assay.run.resume import resume

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.conftest import Train


def by_hand(model: nn.Module) -> Callable[[], None]:
    """As torch's own tutorial freezes a backbone, its batch norms back in eval mode after train()."""
    for name, parameter in model.named_parameters():
        parameter.requires_grad = name.startswith(("fc.", "layer4."))

    def again() -> None:
        for name, module in model.named_modules():
            if isinstance(module, nn.BatchNorm2d) and not name.startswith("layer4."):
                module.eval()

    return again


def steps(model: nn.Module, after_train: Callable[[], None] = lambda: None) -> torch.optim.Optimizer:
    torch.manual_seed(1)
    optimizer = torch.optim.AdamW(
        [p for p in model.parameters() if p.requires_grad], lr=0.01, weight_decay=0.1
    )
    for _ in range(3):
        model.train()
        after_train()
        loss = nn.functional.cross_entropy(model(torch.randn(4, 3, 32, 32)), torch.arange(4))
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]  # torch leaves it untyped
        optimizer.step()
        model.eval()
    return optimizer


def test_equals_freezing_by_hand_bit_for_bit() -> None:
    torch.manual_seed(0)
    ours, theirs = resnet18(num_classes=4), resnet18(num_classes=4)
    theirs.load_state_dict(ours.state_dict())
    start = {name: value.clone() for name, value in ours.state_dict().items()}
    Freeze(["."], ["layer4"]).prepare(ours)
    optimizer = steps(ours)
    steps(theirs, by_hand(theirs))
    for name, value in ours.state_dict().items():
        assert torch.equal(value, theirs.state_dict()[name]), name
        moved = not torch.equal(value, start[name])
        assert moved == name.startswith(("layer4", "fc")), name
    assert len(optimizer.state) == sum(p.requires_grad for p in ours.parameters())  # frozen ones have none


def test_an_expression_that_matches_nothing_is_refused() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))
    with pytest.raises(ValueError, match=r"finetune\.trained\[0\]='block' matches no parameter"):
        Freeze(["."], ["block"]).prepare(model)
    with pytest.raises(ValueError, match=r"finetune\.frozen\[0\]='2' matches no parameter"):  # the head
        Freeze(["2"]).prepare(model)


def model() -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(3, 4, 3),
        nn.BatchNorm2d(4),
        nn.Conv2d(4, 4, 3),
        nn.BatchNorm2d(4, affine=False),
        nn.LayerNorm(2),
    )


def test_held_norms_stay_in_eval_mode_and_keep_their_statistics() -> None:
    network = model()
    hold_statistics(network, {"1.weight"})
    for one in (network, copy.deepcopy(network)):
        one.train()
        assert not one[1].training
        assert one[3].training
        before = [buffer.clone() for buffer in one[1].buffers()]
        free = one[3].running_mean.clone()  # type: ignore[operator]  # it is there
        one(torch.randn(8, 3, 6, 6))
        assert all(torch.equal(*pair) for pair in zip(before, one[1].buffers(), strict=True))
        assert not torch.equal(free, one[3].running_mean)  # type: ignore[arg-type]  # likewise
    assert isinstance(network[1], nn.BatchNorm2d)
    assert list(network.state_dict()) == list(model().state_dict())


def test_the_head_and_new_layers_are_never_frozen() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4, affine=False), nn.Linear(4, 4), nn.Linear(4, 2))
    assert freezable_names(model) == ["0.weight", "0.bias", "2.weight", "2.bias", "1.weight"]
    model.new_layers = ("0",)  # type: ignore[assignment]  # an attribute of one's own
    assert freezable_names(model) == ["2.weight", "2.bias", "1.weight"]


def test_what_is_tied_to_the_head_is_not_frozen() -> None:
    model = nn.Sequential(nn.Embedding(5, 3), nn.Linear(3, 3), nn.Linear(3, 5, bias=False))
    model[2].weight = model[0].weight
    model.head_names = ("2",)  # type: ignore[assignment]  # an attribute of one's own
    assert freezable_names(model) == ["1.weight", "1.bias"]


def test_a_model_without_a_head_or_with_nothing_else_is_refused() -> None:
    with pytest.raises(ValueError, match=r"Sequential has no head .* finetune=none"):
        freezable_names(nn.Sequential(nn.Linear(2, 2), nn.LayerNorm(2)))
    with pytest.raises(ValueError, match=r"is nothing but a head \(1\).*finetune=none"):
        freezable_names(nn.Sequential(nn.Flatten(), nn.Linear(2, 2)))


def trained(model: nn.Module) -> set[str]:
    return {name.split(".")[0] for name, p in model.named_parameters() if p.requires_grad}


def test_layer_by_layer_from_the_head_down() -> None:
    model, gradual = resnet18(num_classes=2), Gradual(every_n_epochs=2)
    gradual.prepare(model)
    assert all(p.requires_grad for p in model.parameters()), "the optimizer is given all of them"
    order = [{"fc"}, {"layer4"}, {"layer3"}, {"layer2"}, {"layer1"}, {"conv1", "bn1"}]
    for epoch in (*range(11), 3, 0, 11):  # a run that goes on begins anywhere
        gradual.begin_epoch(model, epoch)
        assert trained(model) == set().union(*order[: epoch // 2 + 1]), epoch
        model.train()
        for name, module in model.named_modules():
            if isinstance(module, nn.BatchNorm2d):
                assert module.training == (name.split(".")[0] in trained(model)), (epoch, name)
        for other in (0, 5, 11):  # without going there
            found = set(map(id, gradual.trained(model, other)))
            assert {
                name.split(".")[0] for name, p in model.named_parameters() if id(p) in found
            } == set().union(*order[: other // 2 + 1])
        assert trained(model) == set().union(*order[: epoch // 2 + 1])
    assert gradual.last_change(model) == 10


def test_says_what_is_wrong() -> None:
    with pytest.raises(ValueError, match="every_n_epochs=0: expected a number >= 1"):
        Gradual(0)


class Attention(nn.Module):
    def __init__(self, kdim: int | None = None) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(16, 2, batch_first=True, kdim=kdim, vdim=kdim)
        self.mlp = nn.Linear(16, 32)
        self.norm = nn.LayerNorm(32)
        self.head = nn.Linear(32, 3)
        self.kdim = kdim or 16

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        keys = inputs[..., : self.kdim]
        found, _ = self.attention(inputs, keys, keys)
        outputs: torch.Tensor = self.head(self.norm(self.mlp(found).mean(1)))
        return outputs


def moved(model: nn.Module) -> nn.Module:
    """With products that are not zero, as after some training."""
    for name, parameter in model.named_parameters():
        if name.endswith("lora_B"):
            nn.init.normal_(parameter, std=0.2)
    return model


def test_a_linear_layer_follows_the_papers_formula() -> None:
    """h = W x + b + alpha / r * B A x (Hu et al. 2021, equation 3)."""
    torch.manual_seed(0)
    model: Any = nn.Sequential(nn.Linear(8, 6), nn.Linear(6, 2))
    weight, bias = model[0].weight.detach().clone(), model[0].bias.detach().clone()
    inputs = torch.randn(5, 8)
    before = model(inputs)
    LoRA(rank=3, alpha=12.0).prepare(model)
    assert torch.equal(model(inputs), before), "it starts from exactly what it was given"
    moved(model)
    chain = model[0].parametrizations.weight[0]
    expected = inputs @ weight.T + bias + 12.0 / 3 * (inputs @ chain.lora_A.T) @ chain.lora_B.T
    torch.testing.assert_close(model[0](inputs), expected, rtol=1e-5, atol=1e-5)
    assert chain.lora_A.shape == (3, 8)
    assert chain.lora_B.shape == (6, 3)


@pytest.mark.parametrize("kdim", [None, 8])
def test_attention_is_adapted_and_merged(kdim: int | None) -> None:
    torch.manual_seed(0)
    model = Attention(kdim)
    names, plain = list(model.state_dict()), copy.deepcopy(model)
    LoRA(rank=2).prepare(model)
    trained = {name for name, p in model.named_parameters() if p.requires_grad}
    held = {"in_proj_weight"} if kdim is None else {"q_proj_weight", "k_proj_weight", "v_proj_weight"}
    matrices = {f"attention.{name}" for name in held} | {"attention.out_proj.weight", "mlp.weight"}
    assert set(adapted_names(model.state_dict())) == matrices
    assert trained == {"head.weight", "head.bias"} | {
        f"{name.rpartition('.')[0]}.parametrizations.{name.rpartition('.')[2]}.0.lora_{one}"
        for name in matrices
        for one in "AB"
    }
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=0.05)
    inputs = torch.randn(4, 7, 16)
    for _ in range(3):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(inputs), torch.arange(4) % 3).backward()  # type: ignore[no-untyped-call]  # torch leaves it untyped
        optimizer.step()
    assert set(model.state_dict()) & set(plain.state_dict())
    for name in matrices:  # the matrices themselves stayed where they were
        place, _, attribute = name.rpartition(".")
        original = model.get_submodule(place).parametrizations[attribute].original  # type: ignore[union-attr, index]  # a ModuleDict
        assert torch.equal(original, plain.get_parameter(name)), name
    for mode in (True, False):
        model.train(mode)
        outputs = model(inputs)
        merged = copy.deepcopy(model)
        merge(merged)
        torch.testing.assert_close(merged(inputs), outputs, rtol=1e-5, atol=1e-5)
        assert set(merged.state_dict()) == set(names)
    assert not torch.allclose(plain(inputs), outputs, atol=1e-3)
    assert all(merged.get_parameter(name).requires_grad for name in matrices)


def test_says_what_is_wrong_of_lora() -> None:
    with pytest.raises(ValueError, match="rank=0: expected a number >= 1"):
        LoRA(rank=0)
    with pytest.raises(ValueError, match="alpha=nan: expected a number > 0"):
        LoRA(alpha=float("nan"))
    why = r"finetune\.rank: expected a rank below the size of attention\.in_proj_weight, \[48, 16\], got 16"
    with pytest.raises(ConfigError, match=why) as refused:
        LoRA(rank=16).prepare(Attention())
    assert str(refused.value.hint).startswith("finetune.rank=4, or finetune.match=")
    narrow = nn.Sequential(nn.Linear(1, 8), nn.Linear(8, 2))  # no rank is below 1
    with pytest.raises(ConfigError) as refused:
        LoRA(rank=2).insert(narrow, ["0.weight"])
    assert str(refused.value.hint).startswith("finetune.match=")
    with pytest.raises(ValueError, match=r"finetune\.match\[0\]='query' matches no parameter"):
        LoRA(rank=2, match=["query"]).prepare(Attention())
    with pytest.raises(ValueError, match=r"no linear or attention layer besides its head.*finetune=gradual"):
        LoRA().prepare(nn.Sequential(nn.Conv2d(3, 8, 3), nn.Flatten(), nn.Linear(8, 2)))


HEAD = (
    *("data=digits", "model=timm", "model.name=test_resnet", "finetune=head", "trainer.max_epochs=2"),
    *("data.batch_size=64", "optimizer.lr=0.01", "trainer.deterministic=true"),
    "trainer.limit_train_batches=6",
)
"""A frozen network without weights of its own, which is as good for what is asked here."""


def test_a_head_is_trained_on_features_that_are_computed_once(
    train: Train, caplog: pytest.LogCaptureFixture
) -> None:
    cached = train(*HEAD, keep_passes=True)
    printed = [one.getMessage() for one in caplog.records if one.name == "assay.notes"]
    assert "note: computing once what the head sees of 1,257 images" in printed
    every_step = train(*HEAD, "augment=noise", "augment.sigma=0", keep_passes=True)
    assert not any(one.training for one in cached.watch.passes)
    assert any(one.training for one in every_step.watch.passes)
    expected = every_step.weights
    for name, value in cached.weights.items():
        torch.testing.assert_close(value, expected[name], rtol=1e-3, atol=1e-4, msg=name)
    said = (cached.run_dir / "log.txt").read_text()
    assert "finetune=head keeps weights that were never trained: the model starts from random ones" in said
    assert "model.weights=FILE" in said
    metrics = every_step.record["metrics"]
    for score in ("test/accuracy", "test/loss", "val/loss"):
        assert cached.record["metrics"][score] == pytest.approx(metrics[score], abs=3e-3)


def test_a_head_on_features_resumes_bit_for_bit(train: Train, tmp_path: Path) -> None:
    job = (*HEAD, "callbacks=[checkpoint,last_checkpoint]", "callbacks.last_checkpoint.every_n_train_steps=1")
    stopped = train(*job, callbacks=[Interrupt("batch", 8)], raise_errors=False).run_dir
    run_dir = Path(shutil.copytree(stopped, tmp_path / "run"))
    resume(run_dir)
    assert outcome(run_dir) == outcome(train(*job).run_dir)
