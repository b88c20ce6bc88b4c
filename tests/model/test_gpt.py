from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from assay.model.gpt import GPT

SIZES = {"num_layers": 3, "num_heads": 4, "embedding_size": 32}


def made(**changes: Any) -> GPT:
    torch.manual_seed(0)
    return GPT(**{"vocab_size": 11, "context_length": 7, **SIZES, **changes})


def test_it_says_what_the_gpt_2_of_transformers_says() -> None:
    transformers = pytest.importorskip("transformers")
    model = made().eval()
    theirs = transformers.GPT2LMHeadModel(
        transformers.GPT2Config(vocab_size=11, n_positions=7, n_embd=32, n_layer=3, n_head=4)
    ).eval()
    weights: dict[str, Any] = {
        "transformer.wte": model.tokens,
        "transformer.wpe": model.positions,
        "transformer.ln_f": model.norm,
    }
    block: Any
    for number, block in enumerate(model.blocks):
        at = f"transformer.h.{number}"
        weights |= {
            f"{at}.ln_1": block.attention_norm,
            f"{at}.attn.c_attn": block.attention.query_key_value,
            f"{at}.attn.c_proj": block.attention.project,
            f"{at}.ln_2": block.mlp_norm,
            f"{at}.mlp.c_fc": block.mlp.widen,
            f"{at}.mlp.c_proj": block.mlp.project,
        }
    with torch.no_grad():
        for name, layer in weights.items():
            for part, value in layer.named_parameters():
                value.add_(torch.randn_like(value) * 0.1)  # biases, too
                other = theirs.get_submodule(name).get_parameter(part)
                other.copy_(value.t() if isinstance(layer, nn.Linear) else value)
        tokens = torch.randint(11, (5, 7))
        for length in (7, 3, 1):
            expected = theirs(tokens[:, :length]).logits
            torch.testing.assert_close(model(tokens[:, :length]), expected, atol=1e-5, rtol=1e-4)


def test_it_sees_nothing_that_comes_later() -> None:
    model = made().eval()
    tokens = torch.randint(11, (1, 7))
    for at in range(7):
        changed = tokens.clone()
        changed[0, at] = (changed[0, at] + 1) % 11
        differs = (model(tokens) != model(changed)).any(-1)[0]
        assert not differs[:at].any()
        assert differs[at:].all()


def test_weights_start_as_those_of_gpt_2() -> None:
    model = made(vocab_size=500, embedding_size=128, num_layers=8)
    for name, parameter in model.named_parameters():
        if parameter.ndim > 1:
            wanted = 0.02 / 4 if name.endswith("project.weight") else 0.02
            assert abs(float(parameter.detach().std()) / wanted - 1) < 0.1, name
        else:
            assert (parameter == float(name.endswith("weight"))).all(), name
    first = model(torch.randint(500, (4, 7)))
    loss = nn.functional.cross_entropy(first.flatten(0, 1), torch.randint(500, (28,)))
    assert abs(float(loss.detach()) - torch.tensor(500.0).log()) < 0.3


def test_dropout_is_for_training_alone() -> None:
    model, tokens = made(dropout=0.5), torch.randint(11, (2, 7))
    assert not torch.equal(model(tokens), model(tokens))
    model.eval()
    assert torch.equal(model(tokens), model(tokens))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"embedding_size": 30},
            "=30 is not a multiple of model.num_heads, which is 4; use model.embedding_size=32",
        ),
        ({"embedding_size": 2}, "use model.embedding_size=4"),
        ({"num_heads": 0}, "model.num_heads must be at least 1, got 0"),
        ({"num_layers": -1}, "model.num_layers must be at least 1"),
        ({"context_length": 0}, "model.context_length must be at least 1"),
        ({"vocab_size": 0}, "this data has none; use data=text_files"),
        ({"dropout": 1.0}, r"model.dropout must be in \[0, 1\), got 1.0"),
    ],
    ids=str,
)
def test_what_cannot_be_built(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        made(**changes)


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        (torch.zeros(2, 7), "takes token ids"),
        (torch.zeros(2, 1, 7, dtype=torch.long), "takes token ids"),
        (torch.zeros(2, 8, dtype=torch.long), "model.context_length is 7, and a sample has 8 tokens"),
    ],
    ids=["floats", "channels", "long"],
)
def test_what_it_does_not_take(inputs: torch.Tensor, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        made()(inputs)
