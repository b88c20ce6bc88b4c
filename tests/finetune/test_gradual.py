from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torchvision.models import resnet18  # type: ignore[import-untyped]  # torchvision ships no types

from assay.finetune.gradual import Gradual


def trained(model: nn.Module) -> set[str]:
    return {name.split(".")[0] for name, p in model.named_parameters() if p.requires_grad}


def test_layer_by_layer_from_the_head_down() -> None:
    model, gradual = resnet18(num_classes=2), Gradual(every_n_epochs=2)
    gradual.prepare(model)
    assert all(p.requires_grad for p in model.parameters()), "the optimizer is given all of them"
    order = [{"fc"}, {"layer4"}, {"layer3"}, {"layer2"}, {"layer1"}, {"conv1", "bn1"}]
    for epoch in (*range(11), 3, 0, 11):  # a run that goes on begins anywhere
        gradual.begin_epoch(model, epoch)
        assert trained(model) == set().union(*order[: epoch // 2 + 1]), epoch
        model.train()
        for name, module in model.named_modules():
            if isinstance(module, nn.BatchNorm2d):
                assert module.training == (name.split(".")[0] in trained(model)), (epoch, name)
        for other in (0, 5, 11):  # without going there
            found = set(map(id, gradual.trained(model, other)))
            assert {
                name.split(".")[0] for name, p in model.named_parameters() if id(p) in found
            } == set().union(*order[: other // 2 + 1])
        assert trained(model) == set().union(*order[: epoch // 2 + 1])
    assert gradual.last_change(model) == 10


def test_a_schedule_by_names() -> None:
    model, gradual = resnet18(num_classes=2), Gradual(schedule={1: "layer4", 3: ["layer3", r"layer2\.1"]})
    gradual.prepare(model)
    assert trained(model) == {"fc", "layer4", "layer3", "layer2"}  # the others never are
    assert not model.layer2[0].conv1.weight.requires_grad
    for epoch, expected in [(0, {"fc"}), (1, {"fc", "layer4"}), (3, {"fc", "layer4", "layer3", "layer2"})]:
        gradual.begin_epoch(model, epoch)
        assert trained(model) == expected
        gradual.trained(model, 3 - epoch)
        assert trained(model) == expected
    assert len(gradual.trained(model, 9)) == len([p for p in model.parameters() if p.requires_grad])
    assert not model.train().bn1.training
    assert gradual.last_change(model) == 3


def test_an_optimizer_leaves_alone_what_is_frozen_for_now() -> None:
    torch.manual_seed(0)
    model: Any = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2))
    gradual = Gradual()
    gradual.prepare(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1, weight_decay=0.5)
    before = model[0].weight.detach().clone()
    gradual.begin_epoch(model, 0)
    model(torch.randn(3, 4)).sum().backward()
    optimizer.step()
    assert torch.equal(model[0].weight, before), "no weight decay either"
    assert model[0].weight not in optimizer.state
    optimizer.zero_grad()
    gradual.begin_epoch(model, 1)
    model(torch.randn(3, 4)).sum().backward()
    optimizer.step()
    assert not torch.equal(model[0].weight, before)


def test_says_what_is_wrong() -> None:
    with pytest.raises(ValueError, match=r"finetune\.every_n_epochs must be 1 or more, got 0"):
        Gradual(0)
    with pytest.raises(ValueError, match=r"finetune\.schedule has the key 'layer4'; an epoch was expected"):
        Gradual(schedule={"layer4": "2"})  # type: ignore[dict-item]  # the mistake a config can hold
    with pytest.raises(ValueError, match=r"finetune\.schedule\.2\[0\]='layer9' is found in no name .*layer"):
        Gradual(schedule={2: "layer9"}).prepare(resnet18())
