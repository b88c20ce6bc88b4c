from __future__ import annotations

from typing import TYPE_CHECKING, final

from torch import Tensor, nn

from assay.errors import check_numbers
from assay.model.timm import Timm

if TYPE_CHECKING:
    from collections.abc import Sequence


@final
class PretrainedUNet(nn.Module):
    """A U-Net of segmentation-models-pytorch (Iakubovskii 2019) whose encoder is a network of timm.

    Needs the packages `segmentation-models-pytorch` and `timm`, of the extra `pretrained`. Inputs
    `[B, C, H, W]`, float, of any size; outputs `[B, num_outputs, H, W]`.

    Args:
        name: The encoder, one of `timm.list_models()` whose stages each halve the picture: `resnet34`,
            `convnext_tiny`.
        input_shape: Channels, height and width of one picture.
        num_outputs: Classes.
        weights: Of the encoder, as for `assay.model.timm.Timm`; null for random ones.
        decoder_channels: Of each level of the decoder, from the deepest to the full size.

    Attributes:
        head_names: The decoder and its last convolution, which no weights fill.
        new_layers: Layers of the encoder that the weights did not fill.

    Raises:
        ModuleNotFoundError: A package is not installed.
        ValueError: There is no such encoder or no such weights, or they do not fit.
    """

    head_names = ("network.decoder", "network.segmentation_head")
    trained_on = staticmethod(Timm.trained_on)
    to_download = staticmethod(Timm.to_download)

    def __init__(
        self,
        name: str,
        input_shape: Sequence[int],
        num_outputs: int,
        *,
        weights: str | None = None,
        decoder_channels: Sequence[int] = (256, 128, 64, 32, 16),
    ) -> None:
        super().__init__()
        check_numbers("[3, 5]", **{"number of model.decoder_channels": len(decoder_channels)})
        classifier = Timm(name, input_shape, 1, weights=weights)
        from segmentation_models_pytorch import Unet  # type: ignore[import-untyped]  # ships no types

        try:
            self.network = Unet(
                f"tu-{name}",
                encoder_depth=len(decoder_channels),
                encoder_weights=None,
                decoder_channels=tuple(decoder_channels),
                in_channels=input_shape[0],
                classes=num_outputs,
            )
        except (ValueError, RuntimeError) as error:
            raise ValueError(
                f"model.name={name} cannot be the encoder of a U-Net: {error}"
            ) from error
        # of stages, the encoder has `stages_0` where the classifier has `stages.0`
        trained = {
            key.replace(".", "_"): value for key, value in classifier.network.state_dict().items()
        }
        encoder = self.network.encoder.model
        encoder.load_state_dict(
            {key: trained[key.replace(".", "_")] for key in encoder.state_dict()}
        )
        new = [layer for layer in classifier.new_layers if layer not in classifier.head_names]
        self.new_layers = tuple(
            layer.replace("network.", "network.encoder.model.") for layer in new
        )

    def forward(self, inputs: Tensor) -> Tensor:
        """Map pictures `[B, C, H, W]` to one value per class and pixel, `[B, num_outputs, H, W]`."""
        outputs: Tensor = self.network(inputs)
        return outputs
