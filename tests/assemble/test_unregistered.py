"""Layers and tensors of a custom model that PyTorch does not know of."""

from __future__ import annotations

import torch
from torch import nn

from assay.assemble.assembly import notes_on_unregistered


class Forgetful(nn.Module):
    """Layers in a list are not in `parameters()`, a plain tensor is not in `state_dict()`."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = [nn.Linear(2, 2)]
        self.mean = torch.zeros(2)


class Registered(nn.Module):
    """All that training changes is registered; a list may name it once more."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(2, 2)
        self.rest = nn.ModuleList([nn.LSTM(2, 2)])
        self.order = [self.first, *self.rest]
        self.register_buffer("mean", torch.zeros(2))
        self.shape = (2, "same")


def test_what_is_neither_trained_nor_saved_is_named() -> None:
    model = nn.Sequential(Registered(), Forgetful())
    assert not any(name.startswith("1.") for name in model.state_dict())
    layers, tensors = notes_on_unregistered(model)
    assert "Forgetful.layers is not trained" in layers
    assert "Forgetful.mean is in no checkpoint" in tensors
    assert notes_on_unregistered(Registered()) == []
