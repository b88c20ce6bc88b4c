"""A multilayer perceptron of any depth."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Literal, final

import torch
from torch import Tensor, nn

from assay.errors import check_numbers

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_NORMS: dict[str, Callable[[int], nn.Module]] = {"batch": nn.BatchNorm1d, "layer": nn.LayerNorm}


@final
class PeriodicEmbedding(nn.Module):
    """Concatenates each number with a few learnt waves of it: float `[B, F]` to `[B, F * (1 + width)]`.

    A wave is a linear map of `frequencies` cosines, each with its own frequency and phase, so that a network
    can follow steps and turns of a number. From Holzmüller, Grinsztajn and Steinwart 2024, "Better by
    Default" (there PBLD), after Gorishniy, Rubachev and Babenko 2022.
    """

    def __init__(
        self, num_features: int, width: int = 3, *, frequencies: int = 16, sigma: float = 0.1
    ) -> None:
        super().__init__()
        self.frequency = nn.Parameter(
            2 * math.pi * sigma * torch.randn(num_features, frequencies)
        )
        self.phase = nn.Parameter(math.pi * (2 * torch.rand(num_features, frequencies) - 1))
        bound = frequencies**-0.5
        self.weight = nn.Parameter(
            torch.empty(num_features, frequencies, width).uniform_(-bound, bound)
        )
        self.bias = nn.Parameter(torch.empty(num_features, width).uniform_(-bound, bound))

    def forward(self, inputs: Tensor) -> Tensor:
        """Map inputs `[B, F]` to `[B, F * (1 + width)]`."""
        cosines = torch.cos(inputs.unsqueeze(2) * self.frequency + self.phase)
        waves = torch.einsum("bfk,fkw->bfw", cosines, self.weight) + self.bias
        return torch.cat([inputs.unsqueeze(2), waves], 2).flatten(1)


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
        waves: Learnt waves that are added to each input as features, see `PeriodicEmbedding`.

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
        waves: int = 0,
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
        if waves > 0:
            layers.append(PeriodicEmbedding(width, waves))
            width *= 1 + waves
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
            inputs = inputs * (1 + (inputs / self.clip).square()).rsqrt()
        outputs: Tensor = self.layers(inputs)
        return outputs
