from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
from torch import nn
from torchvision.models import resnet18  # type: ignore[import-untyped]  # torchvision ships no types

from assay.finetune.freeze import Freeze

if TYPE_CHECKING:
    from collections.abc import Callable


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


def test_nothing_is_frozen_where_nothing_is_named() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))
    Freeze().prepare(model)
    assert all(p.requires_grad for p in model.parameters())
    assert model.train()[1].training


def test_an_expression_that_matches_nothing_is_refused() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))
    with pytest.raises(ValueError, match=r"finetune\.trained\[0\]='block' is found in no name"):
        Freeze(["."], ["block"]).prepare(model)
    with pytest.raises(ValueError, match=r"finetune\.frozen\[0\]='2' is found in no name"):  # the head
        Freeze(["2"]).prepare(model)
