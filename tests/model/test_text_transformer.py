from __future__ import annotations

from typing import Any

import pytest
import torch

from assay.model.bag_of_embeddings import BagOfEmbeddings
from assay.model.text_transformer import TextTransformer

LENGTHS = torch.tensor([1, 3, 5, 8, 11, 12])


@pytest.mark.parametrize(
    "make", [BagOfEmbeddings, lambda vocab, outputs: TextTransformer(vocab, outputs, 64)]
)
def test_outputs_do_not_depend_on_how_far_a_text_is_padded(make: Any) -> None:
    torch.manual_seed(0)
    model = make(50, 3).double().eval()
    tokens = torch.randint(1, 50, (6, 64)) * (torch.arange(64) < LENGTHS[:, None])
    wide = model(tokens)
    for width in (12, 16, 32):
        torch.testing.assert_close(model(tokens[:, :width]), wide, rtol=0, atol=1e-6)
    alone = torch.cat([model(one[None, :length]) for one, length in zip(tokens, LENGTHS, strict=True)])
    torch.testing.assert_close(alone, wide, rtol=0, atol=1e-6)


def test_attention_is_torch_s_own_encoder() -> None:
    """The same weights in `nn.TransformerEncoderLayer`, with its mask of padding."""
    torch.manual_seed(0)
    model = TextTransformer(50, 3, 16, width=8, depth=2, num_heads=2).double().eval()
    tokens = torch.randint(1, 50, (6, 12)) * (torch.arange(12) < LENGTHS[:, None])
    values = model.embedding(tokens) + model.position(torch.arange(12))
    for layer in model.layers:
        reference = torch.nn.TransformerEncoderLayer(
            8, 2, 32, activation="gelu", batch_first=True, norm_first=True, dtype=torch.float64
        ).eval()
        names = {
            "self_attn.in_proj_": "qkv.",
            "self_attn.out_proj.": "out.",
            "linear1.": "mlp.0.",
            "linear2.": "mlp.2.",
            "norm1.": "attention_norm.",
            "norm2.": "mlp_norm.",
        }
        state = layer.state_dict()
        reference.load_state_dict(
            {
                f"{theirs}{kind}": state[f"{ours}{kind}"]
                for theirs, ours in names.items()
                for kind in ("weight", "bias")
            }
        )
        values = reference(values, src_key_padding_mask=tokens == 0)
        if values.shape[1] < 12:  # torch's fast path leaves padding out
            values = torch.nn.functional.pad(values, (0, 0, 0, 12 - values.shape[1]))
    there = (tokens != 0)[:, :, None]
    mean = (model.norm(values) * there).sum(1) / there.sum(1)
    torch.testing.assert_close(model(tokens), model.head(mean))


def test_a_text_of_nothing_but_padding_is_finite_and_has_finite_gradients() -> None:
    model = TextTransformer(50, 3, 16)
    outputs = model(torch.zeros(2, 8, dtype=torch.int64))
    outputs.sum().backward()
    assert outputs.isfinite().all()
    assert all(one.grad is None or one.grad.isfinite().all() for one in model.parameters())


@pytest.mark.parametrize(
    "sizes", [{"width": 10, "num_heads": 4}, {"depth": 0}, {"max_length": 0}, {"num_heads": 0}]
)
def test_sizes_that_do_not_go_together_are_named(sizes: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=f"{next(iter(sizes))}={next(iter(sizes.values()))}"):
        TextTransformer(**{"vocab_size": 50, "num_outputs": 3, "max_length": 16, **sizes})
