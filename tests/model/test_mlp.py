from __future__ import annotations

from typing import Any, Literal

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from assay.model.mlp import MLP, PeriodicEmbedding


def test_equals_matrix_products_written_out() -> None:
    torch.manual_seed(0)
    model = MLP([2, 3], 4, hidden=[5, 7], activation="torch.nn.Tanh")
    inputs = torch.randn(8, 2, 3)
    weights = [parameter.detach().numpy() for parameter in model.parameters()]
    hidden = inputs.flatten(1).numpy()
    for weight, bias in zip(weights[:-2:2], weights[1:-2:2], strict=True):
        hidden = torch.tanh(torch.from_numpy(hidden @ weight.T + bias)).numpy()
    expected = torch.from_numpy(hidden @ weights[-2].T + weights[-1])
    torch.testing.assert_close(model(inputs), expected)


@settings(max_examples=25, deadline=None)
@given(
    shape=st.lists(st.integers(1, 4), min_size=1, max_size=3),
    hidden=st.lists(st.integers(1, 6), max_size=4),
    outputs=st.integers(1, 4),
    norm=st.sampled_from([None, "batch", "layer"]),
    dropout=st.sampled_from([0.0, 0.5]),
)
def test_any_depth_has_the_layers_it_says(
    shape: list[int], hidden: list[int], outputs: int, norm: Literal["batch", "layer"] | None, dropout: float
) -> None:
    model = MLP(shape, outputs, hidden=hidden, norm=norm, dropout=dropout)
    linear = [module for module in model.modules() if isinstance(module, nn.Linear)]
    features = int(torch.tensor(shape).prod())
    assert [layer.in_features for layer in linear] == [features, *hidden]
    assert [layer.out_features for layer in linear] == [*hidden, outputs]
    kinds: dict[str | None, type[nn.Module]] = {"batch": nn.BatchNorm1d, "layer": nn.LayerNorm}
    norms = sum(isinstance(module, nn.BatchNorm1d | nn.LayerNorm) for module in model.modules())
    assert norms == (0 if norm is None else len(hidden))
    assert norm is None or any(isinstance(module, kinds[norm]) for module in model.modules()) == bool(hidden)
    assert sum(isinstance(module, nn.Dropout) for module in model.modules()) == (
        len(hidden) if dropout else 0
    )
    assert model(torch.randn(3, *shape)).shape == (3, outputs)


def test_waves_are_the_formula_of_their_paper() -> None:
    torch.manual_seed(0)
    embedding = PeriodicEmbedding(4, 3, frequencies=5)
    inputs = torch.randn(7, 4)
    frequency, phase, weight, bias = (parameter.detach().numpy() for parameter in embedding.parameters())
    outputs = embedding(inputs).detach().numpy().reshape(7, 4, 4)
    for row in range(7):
        for column in range(4):
            number = inputs[row, column].item()
            cosines = np.cos(frequency[column] * number + phase[column])
            expected = [number, *(cosines @ weight[column] + bias[column])]
            np.testing.assert_allclose(outputs[row, column], expected, rtol=1e-5, atol=1e-6)


def test_waves_follow_a_number_in_turns_that_lines_do_not() -> None:
    torch.manual_seed(0)
    inputs = torch.rand(512, 1) * 4 - 2
    targets = torch.sin(9 * inputs)
    errors = {}
    for waves in (0, 3):
        model = MLP([1], 1, hidden=[32], waves=waves)
        optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
        for _ in range(400):
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(model(inputs), targets)
            torch.autograd.backward(loss)
            optimizer.step()
        errors[waves] = loss.item()
    assert errors[3] < errors[0] / 2


@pytest.mark.parametrize("name", ["GELU", "torch.nn.GELU"])
def test_activation_by_name_or_path(name: str) -> None:
    model = MLP([4], 2, hidden=[3], activation=name)
    assert any(isinstance(module, nn.GELU) for module in model.modules())


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"activation": "relu"}, r"use torch\.nn\.ReLU$"),
        ({"activation": "torch.nn.Gelu"}, r"use torch\.nn\.GELU$"),
        ({"activation": "torch.nn.Linear"}, "not an activation"),
        ({"activation": "torch.nn.Threshold"}, "without arguments"),
        ({"activation": "os.system"}, "not an activation"),
        ({"norm": "group"}, "null, batch or layer"),
        ({"dropout": 1.0}, r"\[0, 1\)"),
        ({"hidden": [0]}, "at least 1"),
        ({"num_outputs": 0}, "at least 1"),
    ],
)
def test_says_what_is_wrong(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        MLP(**{"input_shape": [4], "num_outputs": 2, **changes})
