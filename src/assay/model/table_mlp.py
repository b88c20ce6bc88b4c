"""A perceptron for tables: waves of numbers and embeddings of categories."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, final

import torch
from torch import Tensor, nn

from assay.errors import check_numbers
from assay.model.mlp import clip_smoothly

if TYPE_CHECKING:
    from collections.abc import Sequence


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


def embedding_width(size: int) -> int:
    """How many numbers stand for one of so many categories.

    >>> [embedding_width(size) for size in (2, 10, 100)]
    [2, 6, 21]
    """
    return min(size, int(1.6 * size**0.56 + 0.5))


@final
class EnsembleLinear(nn.Module):
    """One linear layer of several members, which share its weight: float `[B, K, F]` to `[B, K, H]`.

    Member k computes `((x * r_k) W^T) * s_k + b_k` (Wen, Tran and Ba 2020, "BatchEnsemble"). r and s start as
    in "TabM" (Gorishniy, Kotelnikov and Babenko 2025): at 1, but for random signs r in the first layer.
    """

    def __init__(
        self, width: int, num_outputs: int, members: int, *, signs: bool = False
    ) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(num_outputs, width))
        bound = width**-0.5
        nn.init.uniform_(self.weight, -bound, bound)
        scales = torch.ones(members, width)
        if signs:
            scales = 1 - 2 * torch.randint(2, (members, width)).float()
        self.input_scales = nn.Parameter(scales)
        self.output_scales = nn.Parameter(torch.ones(members, num_outputs))
        self.bias = nn.Parameter(torch.empty(members, num_outputs).uniform_(-bound, bound))

    def forward(self, inputs: Tensor) -> Tensor:
        """Map inputs `[B, K, F]` to `[B, K, H]`."""
        outputs: Tensor = nn.functional.linear(inputs * self.input_scales, self.weight)
        return torch.addcmul(self.bias, outputs, self.output_scales)


@final
class TableMLP(nn.Module):
    """An ensemble of perceptrons over numbers, waves of them, and embeddings of categories.

    Inputs `[B, *input_shape]`, float: numbers, then a code for each category, from 0 on; the code that equals
    the number of categories stands for one that training lacks, whose embedding is zero. Outputs
    `[B, num_outputs]`, the mean of the members; in training mode `[B, members, num_outputs]` where there are
    several, each of which is to be compared with the target by itself. The members share their weights but
    for scales, biases and the last layer (Gorishniy, Kotelnikov and Babenko 2025, "TabM").

    Args:
        input_shape: Shape of one sample.
        num_outputs: Width of the output.
        cardinalities: How many categories there are, for each of the last inputs; empty: all are numbers.
        hidden: Widths of the hidden layers, first to last.
        dropout: Probability of dropping a hidden unit in training.
        clip: Numbers x become `x / sqrt(1 + (x / clip)²)`, between -clip and clip, which limits the influence
            of outliers (RealMLP, Holzmüller, Grinsztajn and Steinwart 2024). None: unchanged.
        waves: Learnt waves that are added to each number as features, see `PeriodicEmbedding`.
        members: Members of the ensemble.

    Raises:
        ValueError: A width below 1, or a dropout outside [0, 1).
    """

    def __init__(
        self,
        input_shape: Sequence[int],
        num_outputs: int,
        cardinalities: Sequence[int] = (),
        *,
        hidden: Sequence[int] = (256, 256),
        dropout: float = 0.0,
        clip: float | None = None,
        waves: int = 0,
        members: int = 1,
    ) -> None:
        super().__init__()
        check_numbers("[1, inf)", input_shape=input_shape, hidden=hidden, num_outputs=num_outputs)
        check_numbers("[1, inf)", members=members)
        check_numbers("(0, inf)", clip=clip)
        self.clip = clip
        self.members = members
        self.num_numbers = math.prod(input_shape) - len(cardinalities)
        self.waves: nn.Module = nn.Identity()
        width = self.num_numbers
        if waves > 0 and self.num_numbers:
            self.waves = PeriodicEmbedding(self.num_numbers, waves)
            width *= 1 + waves
        self.embeddings = nn.ModuleList()
        for size in cardinalities:
            columns = embedding_width(size)
            self.embeddings.append(nn.Embedding(size + 1, columns, padding_idx=size))
            width += columns
        layers: list[nn.Module] = []
        for place, hidden_width in enumerate(hidden):
            layers.append(EnsembleLinear(width, hidden_width, members, signs=place == 0))
            layers.append(nn.ReLU())
            if dropout > 0.0:
                layers.append(nn.Dropout(dropout))
            width = hidden_width
        self.layers = nn.Sequential(*layers)
        bound = width**-0.5
        weights = torch.empty(members, width, num_outputs).uniform_(-bound, bound)
        self.head = nn.Parameter(weights)
        self.head_bias = nn.Parameter(torch.empty(members, num_outputs).uniform_(-bound, bound))

    def forward(self, inputs: Tensor) -> Tensor:
        """Map inputs `[B, *input_shape]` to outputs `[B, num_outputs]`, in training those of all members."""
        outputs = self.member_outputs(inputs)
        if self.training and self.members > 1:
            return outputs
        return outputs.mean(1)

    def member_outputs(self, inputs: Tensor) -> Tensor:
        """Map inputs `[B, *input_shape]` to the outputs of all members, `[B, members, num_outputs]`."""
        flat = inputs.flatten(1)
        numbers = flat[:, : self.num_numbers]
        if self.clip is not None:
            numbers = clip_smoothly(numbers, self.clip)
        features = [self.waves(numbers)]
        codes = flat[:, self.num_numbers :].long()
        for place, embedding in enumerate(self.embeddings):
            features.append(embedding(codes[:, place]))
        shared = torch.cat(features, 1).unsqueeze(1).expand(-1, self.members, -1)
        hidden: Tensor = self.layers(shared)
        return torch.einsum("bkd,kdo->bko", hidden, self.head) + self.head_bias
