from __future__ import annotations

import functools
import logging
import math
import re
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any, Literal, final

from torch import Tensor, nn
from torchvision import models  # type: ignore[import-untyped]  # torchvision ships no types
from torchvision.models import ConvNeXt, ResNet, VisionTransformer  # type: ignore[import-untyped]  # as above

from assay.errors import check_numbers
from assay.model.checks import check_network_name, parse_image_shape
from assay.model.pretrained_weights import Published, find_head, load_pretrained_weights

if TYPE_CHECKING:
    from collections.abc import Sequence

SMALL_IMAGE = 64
"""Largest side, in pixels, of a small image for `small_images: auto`."""

_WITHOUT_AUXILIARY = {"aux_logits": False, "init_weights": True}
_OPTIONS = {"googlenet": _WITHOUT_AUXILIARY, "inception_v3": _WITHOUT_AUXILIARY}
"""The auxiliary heads of the two Inception networks would return a second output while training."""
_AUXILIARY = re.compile(r"(aux1|aux2|AuxLogits|aux_classifier)\.")
_log = logging.getLogger(__name__)


@final
class Torchvision(nn.Module):
    """A network of `torchvision.models` for classes or masks, its stem and head fitted to the data.

    The first convolution is replaced if it does not fit, with the initialisation of its family:

    - *channels*: those of the images;
    - *small images*, ResNet: 3x3 with stride 1 and no max pooling (He et al. 2016, section 4.2, the CIFAR
      networks);
    - *small images*, ConvNeXt: patches of 2x2 pixels instead of 4x4 (1x1 below 16 pixels).

    A Vision Transformer is built for the images' size. Inputs `[B, C, H, W]`, float; outputs
    `[B, num_outputs]`, of a network for masks `[B, num_outputs, H, W]`.

    Args:
        name: One of `torchvision.models.list_models(module=torchvision.models)`, such as `resnet50`, or of
            `torchvision.models.segmentation`, such as `deeplabv3_resnet50`.
        input_shape: Channels, height and width of one image.
        num_outputs: Width of the output.
        small_images: Whether to build the stem for small images; `auto`: up to 64 pixels in height or width,
            if the network has such a stem.
        weights: `DEFAULT` or another of the network's published weights (`IMAGENET1K_V1`), which are
            downloaded once and checked by their hash; a file (`.pth`, `.pt`, `.ckpt`, `.safetensors`) or the
            directory of a run; null for random ones.

    Attributes:
        head_names: The last linear layer, or convolution if there is none.
        new_layers: Layers that the weights did not fill.

    Raises:
        ValueError: There is no such network or no such weights, the weights do not fit, or the network does
            not accept the images.
    """

    def __init__(
        self,
        name: str,
        input_shape: Sequence[int],
        num_outputs: int,
        *,
        small_images: bool | Literal["auto"] = "auto",
        weights: str | None = None,
    ) -> None:
        super().__init__()
        _check_name(name)
        check_numbers("[1, inf)", num_outputs=num_outputs)
        source = _find_published(name, weights) or weights
        options: dict[str, Any] = dict(_OPTIONS.get(name, {}))
        if name.startswith("vit_"):
            _, height, width = parse_image_shape(input_shape, f"model.name={name}")
            if height != width:
                raise ValueError(
                    f"model.name={name} takes square images, the data has {height}x{width}"
                )
            options["image_size"] = height
        if name in _segmentation_names():
            options = {"weights_backbone": None, "aux_loss": False}
        network: nn.Module = models.get_model(name, num_classes=num_outputs, **options)
        stem = _fit_to_images(network, input_shape, small_images)
        head = find_head(network)
        self.head_names = (f"network.{head}",)
        self.network = network
        self.new_layers = load_pretrained_weights(
            network,
            source,
            stem=stem,
            head=[head],
            convert=lambda entries: {
                key: value for key, value in entries.items() if not _AUXILIARY.match(key)
            },
            within="network.",
        )

    def forward(self, inputs: Tensor) -> Tensor:
        """Map images `[B, C, H, W]` to outputs `[B, num_outputs]`, or of masks `[B, num_outputs, H, W]`."""
        outputs: Tensor | dict[str, Tensor] = self.network(inputs)
        # networks for masks return a dict
        if isinstance(outputs, dict):
            return outputs["out"]
        return outputs

    @staticmethod
    def trained_on(name: str, weights: str) -> dict[str, Any]:
        """Return the normalisation and size of the inputs that the published weights were trained with."""
        _check_name(name)
        published = models.get_model_weights(name)
        if weights in published.__members__:
            entry = published[weights]
        else:
            entry = published.DEFAULT
        transform = entry.transforms()
        # torchvision's two Inceptions convert inputs from ImageNet's statistics to these.
        if name in _OPTIONS:
            halves = (0.5, 0.5, 0.5)
        else:
            halves = None
        return {
            "mean": halves or tuple(transform.mean),
            "std": halves or tuple(transform.std),
            "size": (getattr(transform, "crop_size", transform.resize_size)[0],) * 2,
            "source": f"torchvision's {published.__name__}.{entry.name}",
        }

    @staticmethod
    def to_download(name: str, weights: str | None) -> Published | None:
        """Return the file to download before the model can be built; None if there is none."""
        published = _find_published(name, weights)
        return published and published.if_missing()


@functools.cache
def _segmentation_names() -> tuple[str, ...]:
    return tuple(models.list_models(module=models.segmentation))


def _check_name(name: str) -> None:
    names = (*models.list_models(module=models), *_segmentation_names())
    check_network_name(
        name, names, "network of torchvision for classes or masks", "efficientnet_b0"
    )


def _find_published(name: str, weights: str | None) -> Published | None:
    """Return published weights by name; None for a file."""
    if weights is None or not weights.isupper():
        return None
    published = models.get_model_weights(name)
    if weights not in published.__members__:
        raise ValueError(
            f"model.weights={weights}: {name} has no such weights; it has "
            f"{', '.join(member.name for member in published)}, and DEFAULT stands for the best"
        )
    entry = published[weights]
    file = PurePosixPath(entry.url).name
    return Published(
        entry.url,
        file,
        file.removesuffix(".pth").rpartition("-")[2],
        float(entry.meta["_file_size"]),
    )


def _fit_to_images(
    network: nn.Module, input_shape: Sequence[int], small_images: bool | Literal["auto"] = "auto"
) -> str | None:
    """Fit a network to images of a shape, in place; return the name of a replaced stem."""
    family = type(network).__name__
    channels, height, width = parse_image_shape(input_shape, f"this model ({family})")
    has_small_stem = isinstance(network, ResNet | ConvNeXt)
    if small_images is True and not has_small_stem:
        raise ValueError(f"{family} has no stem for small images; use model.small_images=auto")
    if small_images == "auto":
        small_images = has_small_stem and min(height, width) <= SMALL_IMAGE
    return _adapt_stem(network, channels, min(height, width), bool(small_images))


def _adapt_stem(network: nn.Module, channels: int, side: int, small: bool) -> str | None:
    """Replace the first convolution if it does not fit; return its name if so."""
    name, old = next(
        (
            (name, module)
            for name, module in network.named_modules()
            if isinstance(module, nn.Conv2d)
        ),
        ("", None),
    )
    if old is None or (old.in_channels != channels and (old.in_channels != 3 or old.groups != 1)):
        raise ValueError(
            f"{type(network).__name__} has no first convolution over three channels to adapt to {channels}; "
            "name another of torchvision.models"
        )
    kernel = old.kernel_size
    stride = old.stride
    padding = old.padding
    if small and isinstance(network, ResNet):
        kernel = (3, 3)
        stride = (1, 1)
        padding = (1, 1)
        network.maxpool = nn.Identity()
    elif small and isinstance(network, ConvNeXt):
        patch = 1
        if side >= 16:
            patch = 2
        kernel = (patch, patch)
        stride = (patch, patch)
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
