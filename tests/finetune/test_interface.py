from __future__ import annotations

import pytest
from torch import nn

from assay.finetune.interface import freezable, names_that_match


def test_the_head_and_new_layers_are_never_frozen() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4, affine=False), nn.Linear(4, 4), nn.Linear(4, 2))
    assert freezable(model) == ["0.weight", "0.bias", "2.weight", "2.bias", "1.weight"]
    model.new_layers = ("0",)  # type: ignore[assignment]  # an attribute of one's own
    assert freezable(model) == ["2.weight", "2.bias", "1.weight"]


def test_what_is_tied_to_the_head_is_not_frozen() -> None:
    model = nn.Sequential(nn.Embedding(5, 3), nn.Linear(3, 3), nn.Linear(3, 5, bias=False))
    model[2].weight = model[0].weight
    model.head_names = ("2",)  # type: ignore[assignment]  # an attribute of one's own
    assert freezable(model) == ["1.weight", "1.bias"]


def test_a_model_without_a_head_or_with_nothing_else_is_refused() -> None:
    with pytest.raises(ValueError, match=r"Sequential has no head .* finetune=none"):
        freezable(nn.Sequential(nn.Linear(2, 2), nn.LayerNorm(2)))
    with pytest.raises(ValueError, match=r"is nothing but a head \(1\).*finetune=none"):
        freezable(nn.Sequential(nn.Flatten(), nn.Linear(2, 2)))


def test_expressions() -> None:
    names = ["network.layer4.0.weight", "network.fc.weight"]
    assert names_that_match(["layer4", r"fc\."], names, "k") == set(names)
    with pytest.raises(ValueError, match=r"k\[1\]='layre4' is found in no name .* network\.layer4"):
        names_that_match(["fc", "layre4"], names, "k")
    with pytest.raises(ValueError, match=r"k\[0\]='\(' is not a regular expression"):
        names_that_match(["("], names, "k")
