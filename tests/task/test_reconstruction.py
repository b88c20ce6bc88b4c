"""What is compared, kept and said of reconstructions, against numpy."""

from __future__ import annotations

import numpy as np
import torch
from torch import nn

from assay.model.autoencoder import Autoencoder
from assay.model.mlp import MLP
from assay.task.reconstruction import Reconstruction

TASK = Reconstruction()


def test_error_and_latent_vector() -> None:
    model, inputs = Autoencoder([4], 2, hidden=[3]), torch.randn(5, 4)
    outputs = model(inputs).detach()
    found = TASK.described(model, inputs, outputs).detach()
    error = ((outputs.numpy() - inputs.numpy()) ** 2).mean(1)
    np.testing.assert_allclose(found[:, 0].numpy(), error, rtol=1e-6)
    torch.testing.assert_close(found[:, 1:], model.encode(inputs).detach())
    assert TASK.described(nn.Identity(), inputs, inputs).tolist() == [[0.0]] * 5


def test_a_model_without_a_latent_vector() -> None:
    assert TASK.model_problem(MLP([4], 4)) is not None
    assert TASK.model_problem(Autoencoder([4], 2)) is None
    assert TASK.model_problem(nn.Linear(4, 4)) is None, "who names torch's own knows what they do"
