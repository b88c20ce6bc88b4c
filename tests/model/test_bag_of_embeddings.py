from __future__ import annotations

import torch
from torch.nn import EmbeddingBag

from assay.model.bag_of_embeddings import BagOfEmbeddings


def test_it_is_torch_s_embedding_bag_and_a_linear_layer() -> None:
    torch.manual_seed(0)
    model = BagOfEmbeddings(50, 3, width=8).eval()
    bag = EmbeddingBag.from_pretrained(model.embedding.weight.detach(), mode="mean", padding_idx=0)
    tokens = torch.randint(1, 50, (6, 12)) * (torch.arange(12) < torch.tensor([1, 3, 5, 8, 11, 12])[:, None])
    torch.testing.assert_close(model(tokens), model.head(bag(tokens)))


def test_padding_learns_nothing_and_a_text_of_nothing_is_finite() -> None:
    model = BagOfEmbeddings(50, 3)
    outputs = model(torch.tensor([[4, 5, 0, 0], [0, 0, 0, 0]]))
    outputs.square().sum().backward()
    assert outputs.isfinite().all()
    gradient = model.embedding.weight.grad
    assert gradient is not None
    assert not gradient[0].any()
    assert gradient[4].any()
