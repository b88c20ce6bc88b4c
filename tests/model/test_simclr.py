"""An encoder with a projection head."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from assay.model.simclr import SimCLR


def test_projections_in_training_and_features_afterwards() -> None:
    encoder = nn.Linear(6, 5)
    model, inputs = SimCLR(encoder, 5, hidden=4, projection_size=2), torch.randn(3, 6)
    features = encoder(inputs)
    torch.testing.assert_close(model(inputs), model.project(features))
    assert model(inputs).shape == (3, 2)
    torch.testing.assert_close(model.eval()(inputs), features)


@pytest.mark.parametrize("name", ["num_features", "hidden", "projection_size"])
def test_widths_below_one(name: str) -> None:
    with pytest.raises(ValueError, match=f"{name}=0"):
        SimCLR(nn.Identity(), **{"num_features": 5, name: 0})
