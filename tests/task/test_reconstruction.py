"""What is compared, kept and said of reconstructions, against numpy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torchvision.transforms import v2  # type: ignore[import-untyped]  # it has no stubs

from assay.augment.flip_crop import FlipCrop
from assay.model.autoencoder import Autoencoder
from assay.model.mlp import MLP
from assay.task.reconstruction import Reconstruction

TASK = Reconstruction()


def spec(**values: Any) -> dict[str, Any]:
    return {"input_shape": [1, 2, 2], "mean": [], "std": [], **values}


def test_error_and_latent_vector() -> None:
    model, inputs = Autoencoder([4], 2, hidden=[3]), torch.randn(5, 4)
    outputs = model(inputs).detach()
    found = TASK.described(model, inputs, outputs).detach()
    error = ((outputs.numpy() - inputs.numpy()) ** 2).mean(1)
    np.testing.assert_allclose(found[:, 0].numpy(), error, rtol=1e-6)
    torch.testing.assert_close(found[:, 1:], model.encode(inputs).detach())
    assert TASK.described(nn.Identity(), inputs, inputs).tolist() == [[0.0]] * 5


@pytest.mark.parametrize(
    ("values", "fits"),
    [
        ({"value_range": [0.0, 1.0]}, True),
        ({"value_range": [0.0, 16.0]}, False),
        ({"value_range": [0.0, 16.0], "mean": [0.0], "std": [16.0]}, True),
        ({"value_range": [0.0, 1.0], "mean": [0.5, 0.4], "std": [0.2, 0.2]}, False),
    ],
)
def test_binary_cross_entropy_takes_values_from_0_to_1(values: dict[str, Any], fits: bool) -> None:
    assert (TASK.loss_problem(spec(**values), nn.BCEWithLogitsLoss) is None) is fits
    assert TASK.loss_problem(spec(**values), nn.MSELoss) is None


def test_a_model_without_a_latent_vector() -> None:
    assert TASK.model_problem(MLP([4], 4)) is not None
    assert TASK.model_problem(Autoencoder([4], 2)) is None
    assert TASK.model_problem(nn.Linear(4, 4)) is None, "who names torch's own knows what they do"


@pytest.mark.parametrize("augment", [FlipCrop(), v2.RandomHorizontalFlip(), v2.MixUp(num_classes=3)])
def test_what_moves_the_inputs_alone(augment: Any) -> None:
    assert TASK.augment_problem(augment) is not None
    assert TASK.augment_problem(v2.Compose([v2.GaussianNoise(), augment])) is not None
