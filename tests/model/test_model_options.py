"""Every option of conf/model builds a model that trains, for each shape of input that it takes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch
from hydra.utils import instantiate
from omegaconf import OmegaConf
from torch import nn

from assay.compose.recipe import settle_recipe

if TYPE_CHECKING:
    from collections.abc import Sequence

CONF = Path(__file__).parents[2] / "conf" / "model"
OF_TEXTS = {"bag_of_embeddings", "gpt", "hf_text", "text_transformer"}
OF_INPUTS = {"autoencoder", "conv_autoencoder", "simclr"}
"""Of tasks without targets: they return something else than one value per class; see their own tests."""
MASKS = ("deeplab", "unet")
"""A class for each pixel; see below."""
OPTIONS = sorted({path.stem for path in CONF.glob("*.yaml")} - {*MASKS} - OF_TEXTS - OF_INPUTS)
DISTINCT = [option for option in OPTIONS if option != "torchvision"]
NAMES = {"timm": "test_efficientnet", "torchvision": "resnet18"}
SHAPES = [(1, 8, 8), (1, 28, 28), (3, 32, 32)]


def build(
    option: str, input_shape: Sequence[int], num_outputs: int, *, convert: str = "all", **changes: Any
) -> nn.Module:
    if option in NAMES:
        changes.setdefault("name", NAMES[option])
    if option == "fast_cnn" and input_shape[1] < 9:
        changes.setdefault("widths", [16, 32])
    features = 1
    for size in input_shape:
        features *= size
    config = OmegaConf.create(
        {
            "spec": {"input_shape": list(input_shape), "num_outputs": num_outputs, "num_features": features},
            "model": OmegaConf.merge(OmegaConf.load(CONF / f"{option}.yaml"), changes),
        }
    )
    settle_recipe(config)
    model = instantiate(config.model, _convert_=convert)
    assert isinstance(model, nn.Module)
    return model


def train_a_step(model: nn.Module, inputs: torch.Tensor, num_outputs: int) -> torch.Tensor:
    """One step of SGD; returns the outputs before it."""
    outputs: torch.Tensor = model(inputs)
    if num_outputs == 1:
        loss = nn.functional.mse_loss(outputs, torch.ones_like(outputs))
    else:
        targets = torch.arange(len(inputs), device=inputs.device) % num_outputs
        loss = nn.functional.cross_entropy(outputs, targets)
    loss.backward()  # type: ignore[no-untyped-call]  # torch leaves it untyped
    torch.optim.SGD(model.parameters(), lr=0.1).step()
    return outputs


@pytest.mark.parametrize(
    ("option", "input_shape", "num_outputs"),
    [
        *((option, SHAPES[0], 10) for option in OPTIONS),
        *((option, shape, 1) for option in DISTINCT for shape in SHAPES[1:]),
    ],
    ids=str,
)
def test_trains_a_step(option: str, input_shape: tuple[int, ...], num_outputs: int) -> None:
    torch.manual_seed(0)
    model = build(option, input_shape, num_outputs)
    before = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    inputs = torch.randn(4, *input_shape)
    outputs = train_a_step(model, inputs, num_outputs)
    assert outputs.shape == (4, num_outputs)
    assert outputs.isfinite().all()
    assert all(parameter.grad is not None for parameter in model.parameters())
    head = [*before][-2:]
    assert all(not torch.equal(before[name], model.get_parameter(name)) for name in head)
    assert not torch.equal(model(inputs), outputs)


@pytest.mark.parametrize("option", DISTINCT)
def test_float64_and_channels_last_change_nothing_but_rounding(option: str) -> None:
    torch.manual_seed(1)
    model = build(option, (3, 16, 16), 10).eval()
    for parameter in model.parameters():  # a head that starts at zero would hide every difference
        if parameter.ndim == 2 and not parameter.any():
            nn.init.normal_(parameter, std=0.1)
    inputs = torch.randn(4, 3, 16, 16)
    outputs = model(inputs)
    assert outputs.std() > 0
    channels_last = model.to(memory_format=torch.channels_last)(inputs.to(memory_format=torch.channels_last))
    torch.testing.assert_close(channels_last, outputs, rtol=1e-4, atol=1e-5)
    double = model.double()(inputs.double())
    assert double.dtype == torch.float64
    torch.testing.assert_close(double.float(), outputs, rtol=1e-3, atol=1e-4)
