from __future__ import annotations

from typing import TYPE_CHECKING, Any, final

import lightning as L
import torch
from torch import nn
from typing_extensions import override

from assay.errors import ConfigError, check_numbers

if TYPE_CHECKING:
    from torch import Tensor


@final
class Whitening(L.Callback):
    """Set a convolution to the whitening of the training images' patches, and freeze its weights.

    The filters are the eigenvectors of the covariance of patches, each divided by the root of its eigenvalue,
    largest first, followed by their negatives (Jordan 2024, https://arxiv.org/abs/2404.00498, section 3.2).
    Filters beyond these keep their random weights and are frozen, too. Nothing random is drawn.

    Args:
        layer: Name of the convolution within the model.
        num_samples: Training images to use, at most.
        eps: Added to the eigenvalues, for images normalised to unit variance.

    Raises:
        ValueError: `num_samples` or `eps` is not positive.
        ConfigError: As a run begins, if the model has no such convolution for images.
    """

    def __init__(
        self, layer: str = "whiten", num_samples: int = 5000, eps: float = 0.0005
    ) -> None:
        check_numbers("[1, inf)", num_samples=num_samples)
        check_numbers("(0, inf)", eps=eps)
        self.layer = layer
        self.num_samples = num_samples
        self.eps = eps

    def find_convolution(self, model: nn.Module, channels: int) -> nn.Conv2d:
        """Return the convolution that is set, which takes images of so many channels."""
        layers: dict[str, Any] = dict(model.named_modules())
        taking = [
            name
            for name, module in layers.items()
            if isinstance(module, nn.Conv2d)
            and module.in_channels == channels
            and module.groups == 1
        ]
        if self.layer not in taking:
            key = "callbacks.whitening.layer"
            raise ConfigError(
                f"the model has no convolution {self.layer!r} that takes images",
                key=key,
                hint=f"{key}={taking[0]}" if taking else "~callbacks.whitening",
            )
        convolution: nn.Conv2d = layers[self.layer]
        return convolution

    @override
    def setup(self, trainer: L.Trainer, pl_module: Any, stage: str) -> None:
        if stage != "fit":
            return
        # Here, before the optimizer is given the parameters, and before a checkpoint is restored.
        data: Any = trainer.datamodule  # type: ignore[attr-defined]  # a plain attribute
        images = data.normalize(data.sample_inputs(self.num_samples), torch.float32)
        convolution = self.find_convolution(pl_module.model, images.shape[1])
        whitening = whiten_patches(images, convolution.kernel_size, self.eps)
        filters = torch.cat([whitening, -whitening])[: convolution.out_channels]
        convolution.weight.requires_grad_(False)
        convolution.weight[: len(filters)] = filters.to(convolution.weight)
        if convolution.bias is not None:
            nn.init.zeros_(convolution.bias)


def whiten_patches(images: Tensor, size: tuple[int, ...], eps: float) -> Tensor:
    """Filters `[C * h * w, C, h, w]` that whiten patches of h x w pixels of images `[B, C, H, W]`."""
    patches = images.double().unfold(2, size[0], 1).unfold(3, size[1], 1)
    patches = patches.permute(0, 2, 3, 1, 4, 5).flatten(0, 2).flatten(1)
    values, vectors = torch.linalg.eigh(patches.T @ patches / len(patches))
    filters = (vectors / (values + eps).sqrt()).T.flip(0)
    result: Tensor = filters.reshape(-1, images.shape[1], *size)
    return result
