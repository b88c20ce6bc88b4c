from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import nn

from assay.errors import ConfigError
from assay.finetune.lora import LoRA, adapted_in, merge


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
    assert set(adapted_in(model.state_dict())) == matrices
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


def test_the_weights_of_a_run_go_into_a_model_that_is_adapted_alike() -> None:
    trained, fresh = Attention(), Attention()
    LoRA(rank=2, match=["attention"]).prepare(trained)
    state = moved(trained).state_dict()
    LoRA(rank=2, match=["attention"]).insert(fresh, adapted_in(state))
    fresh.load_state_dict(state)
    merge(fresh)
    inputs = torch.randn(4, 7, 16)
    assert torch.equal(fresh(inputs), trained(inputs))


def test_autocast_leaves_the_matrices_alone() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 6), nn.Linear(6, 2))
    LoRA(rank=3).prepare(model)
    moved(model)
    merged = copy.deepcopy(model)
    merge(merged)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(merged(torch.ones(1, 8)), model(torch.ones(1, 8)))


def test_says_what_is_wrong() -> None:
    with pytest.raises(ValueError, match=r"finetune\.rank must be 1 or more, got 0"):
        LoRA(rank=0)
    with pytest.raises(ValueError, match=r"finetune\.alpha must be above 0, got nan"):
        LoRA(alpha=float("nan"))
    why = r"finetune\.rank: 16 is not below the size of attention\.in_proj_weight, \[48, 16\]"
    with pytest.raises(ConfigError, match=why) as refused:
        LoRA(rank=16).prepare(Attention())
    assert str(refused.value.hint).startswith("finetune.rank=4, or finetune.match=")
    narrow = nn.Sequential(nn.Linear(1, 8), nn.Linear(8, 2))  # no rank is below 1
    with pytest.raises(ConfigError) as refused:
        LoRA(rank=2).insert(narrow, ["0.weight"])
    assert str(refused.value.hint).startswith("finetune.match=")
    with pytest.raises(ValueError, match=r"finetune\.match\[0\]='query' is found in no name"):
        LoRA(rank=2, match=["query"]).prepare(Attention())
    with pytest.raises(ValueError, match=r"no linear or attention layer besides its head.*finetune=gradual"):
        LoRA().prepare(nn.Sequential(nn.Conv2d(3, 8, 3), nn.Flatten(), nn.Linear(8, 2)))
