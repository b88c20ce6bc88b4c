from __future__ import annotations

import copy
from typing import Any

import torch
from torch import nn

from assay.finetune.interface import hold_statistics, norm_names


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


def test_norms_without_parameters_are_held_by_name_and_let_go_again() -> None:
    network: Any = model().train()
    assert norm_names(network) == ["1", "3"]
    hold_statistics(network, {"3.weight"})
    assert not network[3].training
    hold_statistics(network, set())
    assert network[3].training
    network.eval()
    assert not network[3].training
