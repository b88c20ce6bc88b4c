"""The layer that was at work when a forward failed."""

import pytest
import torch
from omegaconf import OmegaConf
from torch import nn

from assay.check.fake_step import watched


def test_names_the_innermost_layer_and_both_shapes() -> None:
    model = nn.Sequential(nn.Flatten(), nn.Sequential(nn.ReLU(), nn.Linear(12, 3)))
    with watched(model) as layers, pytest.raises(RuntimeError):
        model(torch.zeros(2, 3, 5))
    assert layers.where() == (
        "layer '1.1', Linear(in_features=12, out_features=3, bias=True), was given [2, 15]"
    )


def test_is_empty_once_a_forward_is_done_and_leaves_no_hooks() -> None:
    model = nn.Linear(2, 2)
    with watched(model) as layers:
        model(torch.zeros(1, 2))
    assert layers.where() == ""
    assert not model._forward_hooks
    assert not model._forward_pre_hooks


def test_types_are_told_where_they_are_unusual() -> None:
    model = nn.Embedding(5, 2)
    with watched(model) as layers, pytest.raises(RuntimeError):
        model(torch.zeros(2, 3, dtype=torch.float64))
    assert layers.where() == "Embedding(5, 2) was given [2, 3] float64"


def test_finds_the_config_key() -> None:
    node = OmegaConf.create(
        {
            "_target_": "torch.nn.Sequential",
            "_args_": [{"_target_": "a"}, {"_target_": "b", "inner": {"c": 1}}],
        }
    )
    model = nn.Sequential(nn.Identity(), nn.Linear(2, 2))
    with watched(model) as layers, pytest.raises(RuntimeError):
        model(torch.zeros(1, 3))
    assert layers.key(node, "model") == "model._args_[1]"
