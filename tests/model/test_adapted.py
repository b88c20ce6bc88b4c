from __future__ import annotations

import math

import pytest
import torch
from torch import nn
from torchvision.models import (  # type: ignore[import-untyped]  # torchvision ships no types
    VisionTransformer,
    convnext_tiny,
    mobilenet_v3_small,
    resnet18,
)

from assay.model.adapted import Adapted


def vit(image_size: int) -> VisionTransformer:
    return VisionTransformer(
        image_size=image_size,
        patch_size=4,
        num_layers=1,
        num_heads=2,
        hidden_dim=16,
        mlp_dim=32,
        num_classes=3,
    )


def first_convolution(model: nn.Module) -> nn.Conv2d:
    return next(module for module in model.modules() if isinstance(module, nn.Conv2d))


@pytest.mark.parametrize("make", [resnet18, mobilenet_v3_small])
def test_a_network_that_fits_stays_torchvision_s(make: type[nn.Module]) -> None:
    torch.manual_seed(0)
    stock = make(num_classes=3)
    torch.manual_seed(0)
    model = Adapted(make(num_classes=3), [3, 224, 224])
    assert repr(model.network) == repr(stock)
    state = model.network.state_dict()
    assert all(torch.equal(value, state[key]) for key, value in stock.state_dict().items())


def test_resnet_for_small_images_is_the_cifar_variant() -> None:
    torch.manual_seed(0)
    model = Adapted(resnet18(num_classes=10), [3, 32, 32])
    assert (
        sum(parameter.numel() for parameter in model.parameters()) == 11_173_962
    )  # 11,181,642 - 3*64*(49 - 9)
    reference = resnet18(num_classes=10)
    reference.conv1 = nn.Conv2d(3, 64, 3, stride=1, padding=1, bias=False)
    reference.maxpool = nn.Identity()
    reference.load_state_dict(model.network.state_dict())
    inputs = torch.randn(4, 3, 32, 32)
    assert torch.equal(model.eval()(inputs), reference.eval()(inputs))


@pytest.mark.parametrize(
    ("side", "small_images", "kernel", "stride"),
    [
        (64, "auto", 3, 1),
        (65, "auto", 7, 2),
        (224, True, 3, 1),
        (32, False, 7, 2),
    ],
)
def test_when_a_resnet_has_the_small_stem(side: int, small_images: bool, kernel: int, stride: int) -> None:
    model = Adapted(resnet18(num_classes=2), [1, side, 200], small_images=small_images)
    stem = first_convolution(model)
    assert (stem.in_channels, stem.kernel_size, stem.stride) == (1, (kernel, kernel), (stride, stride))
    assert isinstance(model.network.maxpool, nn.Identity) == (kernel == 3)


@pytest.mark.parametrize(
    ("side", "small_images", "patch"),
    [(8, "auto", 1), (16, "auto", 2), (64, "auto", 2), (65, "auto", 4), (64, False, 4)],
)
def test_patches_of_a_convnext(side: int, small_images: bool, patch: int) -> None:
    with torch.device("meta"):
        model = Adapted(convnext_tiny(num_classes=2), [2, side, side], small_images=small_images)
        stem = first_convolution(model)
        assert (stem.in_channels, stem.kernel_size, stem.stride) == (2, (patch, patch), (patch, patch))
        assert model(torch.empty(2, 2, side, side)).shape == (2, 2)


def test_a_new_stem_is_initialised_as_its_family_s() -> None:
    torch.manual_seed(0)
    resnet = first_convolution(Adapted(resnet18(num_classes=2), [3, 32, 32])).weight
    assert resnet.std().item() == pytest.approx(math.sqrt(2 / (64 * 3 * 3)), rel=0.05)
    convnext = first_convolution(Adapted(convnext_tiny(num_classes=2), [5, 32, 32]))
    assert convnext.weight.std().item() == pytest.approx(0.02, rel=0.05)
    assert convnext.bias is not None
    assert not convnext.bias.any()
    transformer = first_convolution(Adapted(vit(32), [8, 32, 32]))
    assert transformer.weight.std().item() == pytest.approx(math.sqrt(1 / (8 * 4 * 4)), rel=0.05)


def test_any_network_over_three_channels_takes_others() -> None:
    model = Adapted(mobilenet_v3_small(num_classes=3), [5, 64, 64])
    assert model(torch.zeros(2, 5, 64, 64)).shape == (2, 3)


def test_says_what_is_wrong() -> None:
    with pytest.raises(
        ValueError, match=r"\(ResNet\) takes images \[C,H,W\], the data has \[13\]; use model=mlp"
    ):
        Adapted(resnet18(), [13])
    with pytest.raises(ValueError, match="built for 8x8 pixels, the data has 8x12"):
        Adapted(vit(8), [1, 8, 12])
    with pytest.raises(ValueError, match=r"no stem for small images.*model\.network\.patch_size"):
        Adapted(vit(8), [1, 8, 8], small_images=True)
    with pytest.raises(ValueError, match="auto, true or false"):
        Adapted(vit(8), [1, 8, 8], small_images="yes")  # type: ignore[arg-type]  # the mistake a config can hold
    with pytest.raises(ValueError, match="no first convolution"):
        Adapted(nn.Linear(3, 3), [3, 8, 8])
    with torch.device("meta"):
        with pytest.raises(
            ValueError, match=r"32x32 or more, the data has 24x24; use model\.small_images=true"
        ):
            Adapted(convnext_tiny(), [3, 24, 24], small_images=False)
        with pytest.raises(ValueError, match="8x8 or more, the data has 7x7; use model=small_cnn"):
            Adapted(convnext_tiny(), [3, 7, 7])
