"""What stands under `data.transform`: two chains, and what inputs are normalised with."""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from assay.data.transform.normalize import IMAGENET_MEAN, IMAGENET_STD
from assay.data.transform.transforms import Transforms
from assay.errors import DataError

if TYPE_CHECKING:
    from torch import Tensor

Scale = tuple[tuple[float, ...], tuple[float, ...]]
"""Mean and deviation, a value a channel or feature each."""


def given(transform: Mapping[str, Any], name: str) -> Any:
    """What a key of it says.

    Raises:
        DataError: It is left out.
    """
    if name not in transform:
        raise DataError(
            f"data.transform.{name}: this must be given", hint=f"leave {name} as data/transform=none has it"
        )
    return transform[name]


def chain_of(transform: Mapping[str, Any], name: str) -> Transforms:
    """A chain of transforms.

    Args:
        transform: The node.
        name: `train` or `eval`.

    Raises:
        DataError: It is not a list of transforms.
    """
    chain = given(transform, name)
    if not isinstance(chain, list | tuple) or not all(map(callable, chain)):
        raise DataError(
            f"data.transform.{name}: {chain!r} was given; a list of transforms (nodes with a _target_) was "
            "expected",
            hint=f"data.transform.{name}=[]",
        )
    return Transforms(chain, [f"data.transform.{name}[{index}]" for index in range(len(chain))])


def given_scale(by: Any) -> Scale | None:
    """The mean and std that are given, or None where the data's own are wanted.

    Args:
        by: What `normalize` says.

    Raises:
        DataError: It is none of its choices.
    """
    if by is None:
        return (), ()
    if by in ("auto", "data"):
        return None
    if by == "imagenet":
        return IMAGENET_MEAN, IMAGENET_STD
    if isinstance(by, Mapping) and set(by) == {"mean", "std"}:
        with suppress(TypeError, ValueError):
            mean, std = tuple(map(float, by["mean"])), tuple(map(float, by["std"]))
            if len(mean) == len(std) and all(map(math.isfinite, (*mean, *std))) and min(std) > 0:
                return mean, std
    raise DataError(
        f"data.transform.normalize: {by!r} was given; auto, data, imagenet, null or a mapping of mean and "
        "std (above 0) was expected",
        hint="data.transform.normalize={mean: [0.5], std: [0.5]}, with one value a channel",
    )


def given_for(first: Tensor, scale: Scale | None) -> Scale | None:
    """The mean and std that are given, where they fit the samples.

    Args:
        first: Some of them, `[B, C, ...]`.
        scale: As `given_scale` gives it.

    Raises:
        DataError: They are of another number of channels.
    """
    if scale is not None and len(scale[0]) not in (0, 1, first.shape[1]):
        raise DataError(
            f"data.transform.normalize: {len(scale[0])} values for inputs of {first.shape[1]} channel(s)",
            hint="data.transform.normalize=data, or make images RGB with torchvision.transforms.v2.RGB",
        )
    return scale


def check_tokens(transforms: Mapping[str, Transforms], scale: Scale | None) -> None:
    """Refuse to do to token ids what only means anything for numbers.

    Args:
        transforms: `train` and `eval`.
        scale: As `given_scale` gives it.

    Raises:
        DataError: There are transforms, or a scale is given.
    """
    for name, chain in transforms.items():
        if chain:
            raise DataError(
                f"data.transform.{name}: the inputs are token ids of texts; transforms are for pictures",
                hint="data/transform=none",
            )
    if scale not in (None, ((), ())):
        raise DataError(
            "data.transform.normalize: the inputs are token ids of texts, which cannot be normalised",
            hint="data.transform.normalize=null",
        )
