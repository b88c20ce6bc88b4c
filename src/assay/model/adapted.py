"""A network made for ImageNet, fitted to the images at hand."""

from __future__ import annotations

import logging
import math
from typing import TYPE_CHECKING, Final, Literal, final

from torch import Tensor, nn
from torchvision.models import (  # type: ignore[import-untyped]  # torchvision ships no types
    ConvNeXt,
    ResNet,
    VisionTransformer,
)

from assay.model.checks import image_shape
from assay.model.pretrained_weights import load_pretrained_weights

if TYPE_CHECKING:
    from collections.abc import Sequence

SMALL_IMAGE: Final = 64
"""Largest side, in pixels, of what `small_images: auto` holds for a small image."""

_log = logging.getLogger(__name__)


@final
class Adapted(nn.Module):
    """A torchvision network whose stem fits images of any number of channels, and small ones.

    The network's first convolution is built anew where it does not fit, with the initialisation its family
    uses:

    - *channels*: as many as the images have, in any network whose first convolution takes three;
    - *small images*, ResNet: 3x3 with stride 1 and no max pooling (He et al. 2016, section 4.2, the CIFAR
      networks);
    - *small images*, ConvNeXt: patches of 2x2 pixels instead of 4x4 (1x1 below 16 pixels).

    A network that fits already stays as it is. A Vision Transformer states its patches itself
    (`network.patch_size`).

    Inputs `[B, C, H, W]`, float; outputs `[B, num_outputs]`: what `network` returns, of a network for masks
    `[B, num_outputs, H, W]`.

    Args:
        network: Takes images of three channels, such as `torchvision.models.resnet18(num_classes=10)`.
        input_shape: Channels, height and width of one image.
        small_images: Whether to build the stem for small images; `auto`: up to 64 pixels in height or width,
            where the network has such a stem.
        weights: File of pretrained weights to start from (`.pt`, `.pth`, `.ckpt`, `.safetensors`), or the
            directory of a run: a state dict, or a checkpoint that holds one as `state_dict`. The head and a
            stem built anew are left out where their shape differs, and that is logged.

    Attributes:
        head_names: The network's last linear layer (or convolution, where it has none).
        new_layers: Layers that the weights did not fill.

    Raises:
        ValueError: The input is not an image, or has a size that the network cannot take; `small_images` is
            true for a network that has no such stem; the weights do not fit.
    """

    def __init__(
        self,
        network: nn.Module,
        input_shape: Sequence[int],
        small_images: bool | Literal["auto"] = "auto",
        weights: str | None = None,
    ) -> None:
        super().__init__()
        if weights is not None and weights.isupper():
            raise ValueError(
                f"model.weights={weights} names published weights, which this option does not know; use "
                f"model=torchvision model.name=resnet50 model.weights={weights}, or the path of a file"
            )
        stem = fit_to_images(network, input_shape, small_images)
        self.head_names = (f"network.{head_of(network)}",)
        self.new_layers: tuple[str, ...] = ()
        if weights is not None:
            left_out = load_pretrained_weights(network, weights, stem=stem)
            self.new_layers = tuple(f"network.{name}" for name in left_out)
        self.network = network

    def forward(self, inputs: Tensor) -> Tensor:
        """Map images `[B, C, H, W]` to outputs `[B, num_outputs]`, or of masks `[B, num_outputs, H, W]`."""
        outputs: Tensor | dict[str, Tensor] = self.network(inputs)
        return outputs["out"] if isinstance(outputs, dict) else outputs  # of torchvision.models.segmentation


def head_of(network: nn.Module) -> str:
    """Name of a network's last linear layer, or of its last convolution where it has none."""
    names: dict[type[nn.Module], list[str]] = {
        kind: [name for name, module in network.named_modules() if isinstance(module, kind)]
        for kind in (nn.Linear, nn.Conv2d)
    }
    return (names[nn.Linear] or names[nn.Conv2d] or [""])[-1]


def fit_to_images(
    network: nn.Module, input_shape: Sequence[int], small_images: bool | Literal["auto"] = "auto"
) -> str | None:
    """Have a network take images of a shape, in place; see `Adapted`."""
    family = type(network).__name__
    channels, height, width = image_shape(input_shape, f"this model ({family})")
    if small_images not in {True, False, "auto"}:
        raise ValueError(f"model.small_images must be auto, true or false, got {small_images!r}; use auto")
    has_small_stem = isinstance(network, ResNet | ConvNeXt)
    if small_images is True and not has_small_stem:
        raise ValueError(
            f"{family} has no stem for small images; use model.small_images=auto"
            + (" and set model.network.patch_size" if isinstance(network, VisionTransformer) else "")
        )
    if small_images == "auto":
        small_images = has_small_stem and min(height, width) <= SMALL_IMAGE
    stem = _adapt_stem(network, channels, min(height, width), bool(small_images))
    _check_size(network, height, width)
    return stem


def _adapt_stem(network: nn.Module, channels: int, side: int, small: bool) -> str | None:
    """Build the first convolution anew if it does not fit; returns its name if so."""
    name, old = next(
        ((name, module) for name, module in network.named_modules() if isinstance(module, nn.Conv2d)),
        ("", None),
    )
    if old is None or (old.in_channels != channels and (old.in_channels != 3 or old.groups != 1)):
        raise ValueError(
            f"{type(network).__name__} has no first convolution over three channels to adapt to {channels}; "
            "name another of torchvision.models"
        )
    kernel, stride, padding = old.kernel_size, old.stride, old.padding
    if small and isinstance(network, ResNet):
        kernel, stride, padding = (3, 3), (1, 1), (1, 1)
        network.maxpool = nn.Identity()
    elif small and isinstance(network, ConvNeXt):
        patch = 2 if side >= 16 else 1
        kernel, stride = (patch, patch), (patch, patch)
    if (channels, kernel, stride) == (old.in_channels, old.kernel_size, old.stride):
        return None
    new = nn.Conv2d(
        channels,
        old.out_channels,
        kernel_size=(kernel[0], kernel[1]),
        stride=(stride[0], stride[1]),
        padding=padding if isinstance(padding, str) else (padding[0], padding[1]),
        bias=old.bias is not None,
        device=old.weight.device,
        dtype=old.weight.dtype,
    )
    _initialise(new, network)
    network.set_submodule(name, new)
    _log.debug("%s: %s is now %s", type(network).__name__, name, new)
    return name


def _initialise(convolution: nn.Conv2d, network: nn.Module) -> None:
    """Initialise a stem as torchvision does in the network's family; others as in its ResNets."""
    if isinstance(network, ConvNeXt):
        nn.init.trunc_normal_(convolution.weight, std=0.02)
    elif isinstance(network, VisionTransformer):
        fan_in = convolution.in_channels * math.prod(convolution.kernel_size)
        nn.init.trunc_normal_(convolution.weight, std=math.sqrt(1 / fan_in))
    else:
        nn.init.kaiming_normal_(convolution.weight, mode="fan_out", nonlinearity="relu")
    if convolution.bias is not None:
        nn.init.zeros_(convolution.bias)


def _check_size(network: nn.Module, height: int, width: int) -> None:
    """Raise ValueError where the first forward would fail on the size of the image."""
    if isinstance(network, VisionTransformer) and (height, width) != (network.image_size, network.image_size):
        raise ValueError(
            f"VisionTransformer is built for {network.image_size}x{network.image_size} pixels, the data has "
            f"{height}x{width}; it takes square images of the size in model.network.image_size"
        )
    if isinstance(network, ConvNeXt):
        stem = next(module for module in network.modules() if isinstance(module, nn.Conv2d))
        smallest = 8 * stem.stride[0]  # three times halved after the stem
        if min(height, width) < smallest:
            raise ValueError(
                f"ConvNeXt with patches of {stem.stride[0]}x{stem.stride[0]} pixels takes images of "
                f"{smallest}x{smallest} or more, the data has {height}x{width}; use "
                + ("model=small_cnn" if smallest == 8 else "model.small_images=true")
            )
