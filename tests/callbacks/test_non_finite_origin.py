from __future__ import annotations

import math
from typing import Any

import torch
from torch import nn

from assay.callbacks.non_finite import gradients, note_non_finite, spoilt_rows, weights


def mark(tensors: list[torch.Tensor]) -> float:
    found = torch.zeros(())
    note_non_finite(tensors, found, torch.ones(()))
    return found.item()


def test_rows_gradients_and_weights() -> None:
    batch = {"x": torch.ones(4, 2), "y": torch.ones(4, dtype=torch.long)}
    batch["x"][2, 1] = math.inf
    assert spoilt_rows(batch) == [2]
    model: Any = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    assert gradients(model) == []
    model[0].bias.grad = torch.tensor([1.0, math.nan])
    assert gradients(model) == ["0.bias"]
    assert weights(model) == []
    with torch.no_grad():
        model[1].weight[0, 0] = math.nan
    assert weights(model) == ["1.weight"]
    with torch.no_grad():
        model[1].weight.fill_(3e38)
    assert weights(model) == [], "large is not infinite"


def test_sparse_complex_and_empty_gradients() -> None:
    table = nn.Embedding(5, 2, sparse=True)
    table(torch.tensor([1, 1, 3])).sum().backward()
    assert table.weight.grad is not None
    well = [table.weight.grad, torch.zeros(0), torch.complex(torch.ones(2), torch.ones(2))]
    assert mark(well) == 0
    assert mark([]) == 0
    table.weight.grad._values()[0] = math.nan
    assert mark([table.weight.grad]) == 1
    assert mark([*well, torch.tensor([1.0, -math.inf])]) == 1
    assert mark([torch.complex(torch.ones(2), torch.tensor([1.0, math.inf]))]) == 1
