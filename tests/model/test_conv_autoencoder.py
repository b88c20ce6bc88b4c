"""The convolutional autoencoder."""

from __future__ import annotations

import pytest
import torch

from assay.model.conv_autoencoder import ConvAutoencoder


@pytest.mark.parametrize("shape", [(1, 8, 8), (3, 9, 13), (1, 1, 1), (3, 32, 32)])
@pytest.mark.parametrize("widths", [[8], [8, 4, 6]])
def test_returns_the_shape_it_was_given(shape: tuple[int, ...], widths: list[int]) -> None:
    model = ConvAutoencoder(shape, latent_size=5, widths=widths).eval()
    inputs = torch.randn(2, *shape)
    assert model(inputs).shape == inputs.shape
    assert model.encode(inputs).shape == (2, 5)
    torch.testing.assert_close(model(inputs), model.decoder(model.encode(inputs)))


def test_every_weight_learns() -> None:
    model = ConvAutoencoder([1, 8, 8], latent_size=4, widths=[8, 8])
    model(torch.randn(4, 1, 8, 8)).square().mean().backward()
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in model.parameters())


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        ({"input_shape": [1, 8, 8], "widths": []}, r"use model\.widths"),
        ({"input_shape": [1, 8, 8], "latent_size": 0}, r"use model\.latent_size"),
        ({"input_shape": [13]}, "takes images"),
    ],
)
def test_refuses(arguments: dict[str, object], match: str) -> None:
    with pytest.raises(ValueError, match=match):
        ConvAutoencoder(**arguments)  # type: ignore[arg-type]  # wrong on purpose
