"""The autoencoder of fully connected layers."""

from __future__ import annotations

import logging

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits  # type: ignore[import-untyped]  # it has no stubs
from sklearn.decomposition import PCA  # type: ignore[import-untyped]  # it has no stubs

from assay.model.autoencoder import Autoencoder


def test_the_latent_vector_is_all_that_the_decoder_sees() -> None:
    model = Autoencoder([3, 4, 5], latent_size=7, hidden=[16, 8])
    inputs = torch.randn(2, 3, 4, 5)
    assert model.encode(inputs).shape == (2, 7)
    torch.testing.assert_close(model(inputs), model.decoder(model.encode(inputs)))
    widths = [layer.out_features for layer in model.modules() if isinstance(layer, torch.nn.Linear)]
    assert widths == [16, 8, 7, 8, 16, 60]


def test_a_linear_one_can_be_a_pca() -> None:
    points = load_digits().data.astype(np.float32)
    pca = PCA(5).fit(points)
    model = Autoencoder([64], latent_size=5, hidden=[])
    encoder, decoder = (layer for layer in model.modules() if isinstance(layer, torch.nn.Linear))
    with torch.no_grad():
        components, mean = torch.tensor(pca.components_), torch.tensor(pca.mean_)
        encoder.weight.copy_(components)
        encoder.bias.copy_(-components @ mean)
        decoder.weight.copy_(components.T)
        decoder.bias.copy_(mean)
        found = model(torch.tensor(points)).numpy()
    np.testing.assert_allclose(found, pca.inverse_transform(pca.transform(points)), atol=1e-3)


@pytest.mark.parametrize(("size", "warns"), [(3, False), (4, True), (9, True)])
def test_a_latent_vector_as_wide_as_the_input_is_told(
    size: int, warns: bool, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, logger="assay"):
        Autoencoder([4], latent_size=size)
    assert ("without learning anything" in caplog.text) is warns


def test_no_latent_vector() -> None:
    with pytest.raises(ValueError, match=r"use model\.latent_size=8"):
        Autoencoder([4], latent_size=0)
