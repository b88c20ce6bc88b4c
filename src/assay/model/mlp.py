"""A multilayer perceptron of any depth."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Literal, final

from torch import Tensor, nn

from assay.errors import check_numbers

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_NORMS: dict[str, Callable[[int], nn.Module]] = {"batch": nn.BatchNorm1d, "layer": nn.LayerNorm}


def clip_smoothly(inputs: Tensor, clip: float) -> Tensor:
    """Inputs x as `x / sqrt(1 + (x / clip)²)`, between -clip and clip."""
    return inputs * (1 + (inputs / clip).square()).rsqrt()


@final
class MLP(nn.Module):
    """Layers of linear, norm, activation and dropout over the flattened input, then one linear layer.

    Inputs `[B, *input_shape]`, float; outputs `[B, num_outputs]`. An empty `hidden` is a linear model.

    Args:
        input_shape: Shape of one sample.
        num_outputs: Width of the output.
        hidden: Widths of the hidden layers, first to last.
        activation: An activation of `torch.nn`, as `GELU` or `torch.nn.GELU`.
        dropout: Probability of dropping a hidden unit in training.
        norm: `batch` (`BatchNorm1d`), `layer` (`LayerNorm`) or none, before each activation.
        clip: Inputs x become `x / sqrt(1 + (x / clip)²)`, between -clip and clip, which limits the influence
            of outliers (RealMLP, Holzmüller, Grinsztajn and Steinwart 2024). None: unchanged.

    Raises:
        ValueError: A width below 1, an unknown activation or norm, or a dropout outside [0, 1).
    """

    def __init__(
        self,
        input_shape: Sequence[int],
        num_outputs: int,
        *,
        hidden: Sequence[int] = (256, 256),
        activation: str = "torch.nn.ReLU",
        dropout: float = 0.0,
        norm: Literal["batch", "layer"] | None = None,
        clip: float | None = None,
    ) -> None:
        super().__init__()
        check_numbers("[1, inf)", input_shape=input_shape, hidden=hidden, num_outputs=num_outputs)
        check_numbers("(0, inf)", clip=clip)
        self.clip = clip
        short = activation.removeprefix("torch.nn.")
        if short not in nn.modules.activation.__all__:
            raise ValueError(
                f"model.activation={activation}: expected one of torch.nn, such as torch.nn.GELU"
            )
        make_activation: Callable[[], nn.Module] = getattr(nn, short)
        layers: list[nn.Module] = [nn.Flatten()]
        width = math.prod(input_shape)
        for hidden_width in hidden:
            layers.append(nn.Linear(width, hidden_width))
            if norm is not None:
                layers.append(_NORMS[norm](hidden_width))
            layers.append(make_activation())
            if dropout > 0.0:
                layers.append(nn.Dropout(dropout))
            width = hidden_width
        layers.append(nn.Linear(width, num_outputs))
        self.layers = nn.Sequential(*layers)

    def forward(self, inputs: Tensor) -> Tensor:
        """Map inputs `[B, *input_shape]` to outputs `[B, num_outputs]`."""
        if self.clip is not None:
            inputs = clip_smoothly(inputs, self.clip)
        outputs: Tensor = self.layers(inputs)
        return outputs
