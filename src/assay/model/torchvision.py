from __future__ import annotations

import functools
import re
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any, Final, Literal, final

from torch import Tensor, nn
from torchvision import models  # type: ignore[import-untyped]  # torchvision ships no types

from assay.model.adapted import fit_to_images, head_of
from assay.model.checks import check_network_name, image_shape
from assay.model.pretrained_weights import Published, load_pretrained_weights

if TYPE_CHECKING:
    from collections.abc import Sequence

_WITHOUT_AUXILIARY: Final = {"aux_logits": False, "init_weights": True}
_OPTIONS: Final = {"googlenet": _WITHOUT_AUXILIARY, "inception_v3": _WITHOUT_AUXILIARY}
"""The auxiliary heads of the two Inception networks would return a second output while training."""
_AUXILIARY: Final = re.compile(r"(aux1|aux2|AuxLogits)\.")


@final
class Torchvision(nn.Module):
    """A classification network of `torchvision.models`, its stem and head fitted to the data.

    Inputs `[B, C, H, W]`, float; outputs `[B, num_outputs]`. The stem is fitted as in
    `assay.model.adapted.Adapted`; a Vision Transformer is built for the images' size.

    Args:
        name: One of `torchvision.models.list_models(module=torchvision.models)`.
        input_shape: Channels, height and width of one image.
        num_outputs: Width of the output.
        small_images: As for `Adapted`.
        weights: `DEFAULT` or another of the network's published weights (`IMAGENET1K_V1`), which are
            downloaded once and checked by their hash; a file (`.pth`, `.pt`, `.ckpt`, `.safetensors`) or the
            directory of a run; null for random ones.

    Attributes:
        head_names: The last linear layer, or convolution where there is none.
        new_layers: Layers that the weights did not fill.

    Raises:
        ValueError: There is no such network or no such weights, the weights do not fit, or the images are not
            what the network can take.
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
        published = _published(name, weights)
        options: dict[str, Any] = dict(_OPTIONS.get(name, {}))
        if name.startswith("vit_"):
            options["image_size"] = image_shape(input_shape, f"model.name={name}")[1]
        network: nn.Module = models.get_model(name, num_classes=num_outputs, **options)
        stem = fit_to_images(network, input_shape, small_images)
        head = head_of(network)
        self.head_names = (f"network.{head}",)
        self.new_layers: tuple[str, ...] = ()
        self.network = network
        on_meta = next(network.parameters()).is_meta
        if weights is None or (published is not None and on_meta):  # nothing is downloaded to be checked
            return
        path = weights if published is None else str(published.fetch())
        left_out = load_pretrained_weights(network, path, stem=stem, head=[head], convert=_own_entries)
        self.new_layers = tuple(f"network.{layer}" for layer in left_out)

    def forward(self, inputs: Tensor) -> Tensor:
        """Map images `[B, C, H, W]` to outputs `[B, num_outputs]`."""
        outputs: Tensor = self.network(inputs)
        return outputs

    @staticmethod
    def trained_on(name: str, weights: str) -> dict[str, Any]:
        """What inputs the published weights of a network were trained with."""
        _check_name(name)
        every = models.get_model_weights(name)
        found = every[weights] if weights in every.__members__ else every.DEFAULT
        transform = found.transforms()
        # Given ImageNet's statistics, torchvision's two Inceptions bring their inputs to these by themselves.
        halves = (0.5, 0.5, 0.5) if name in _OPTIONS else None
        return {
            "mean": halves or tuple(transform.mean),
            "std": halves or tuple(transform.std),
            "size": (transform.crop_size[0], transform.crop_size[0]),
            "source": f"torchvision's {every.__name__}.{found.name}",
        }

    @staticmethod
    def to_download(name: str, weights: str | None) -> Published | None:
        """The file that has to be downloaded before the model can be built; None where there is none."""
        published = _published(name, weights)
        return published if published is not None and not published.path.is_file() else None


@functools.cache
def _names() -> tuple[str, ...]:
    return tuple(models.list_models(module=models))


def _check_name(name: str) -> None:
    check_network_name(name, _names(), "classification network of torchvision", "efficientnet_b0")


def _published(name: str, weights: str | None) -> Published | None:
    """Published weights by their name; None for a file."""
    if weights is None or not weights.isupper():
        return None
    every = models.get_model_weights(name)
    if weights not in every.__members__:
        raise ValueError(
            f"model.weights={weights}: {name} has no such weights; it has "
            f"{', '.join(one.name for one in every)}, and DEFAULT stands for the best"
        )
    found = every[weights]
    file = PurePosixPath(found.url).name
    return Published(
        found.url, file, file.removesuffix(".pth").rpartition("-")[2], float(found.meta["_file_size"])
    )


def _own_entries(entries: dict[str, Tensor]) -> dict[str, Tensor]:
    return {key: value for key, value in entries.items() if not _AUXILIARY.match(key)}
