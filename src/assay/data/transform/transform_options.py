"""What stands under `data.transform`: two chains, and what inputs are normalised with."""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, final

from assay.data.transform.normalize import IMAGENET_MEAN, IMAGENET_STD
from assay.data.transform.transforms import Transforms
from assay.errors import DataError

if TYPE_CHECKING:
    from torch import Tensor


@final
class PretrainedScale:
    """What `data.transform.normalize: auto` makes of the inputs that a model's weights were trained with.

    Args:
        inputs: `mean`, `std`, `size` and `source`, see `assay.build.compatibility`; None
            where the model starts from random weights.
        normalize: What `data.transform.normalize` says.

    Attributes:
        notes: What was decided, a sentence each; there once `scale` was called.
    """

    def __init__(self, inputs: Mapping[str, Any] | None, normalize: Any) -> None:
        self._inputs, self._normalize = inputs, normalize
        self.notes: tuple[str, ...] = ()

    def scale(self, first: Tensor, given: Scale | None) -> Scale | None:
        """Mean and deviation to normalise with; None where what was given, or the data's own, counts.

        Args:
            first: Some samples as the model will see them, `[B, C, ...]`, not normalised.
            given: What `data.transform.normalize` comes to, as far as it says so itself.
        """
        if self._inputs is None:
            return None
        source, (mean, std) = self._inputs["source"], (self._inputs["mean"], self._inputs["std"])
        told = f"mean {_short(mean)}, std {_short(std)}"
        self.notes = self._on_size(first)
        if self._normalize != "auto":
            if given != (mean, std):
                self._say(
                    f"data.transform.normalize={self._normalize}: the weights of {source} were trained with "
                    f"{told}; data.transform.normalize=auto takes these"
                )
            return None
        channels = first.shape[1]
        if channels == 1 and len(mean) == 3:  # a grey image is one whose channels are equal
            mean, std = (sum(mean) / 3,), (sum(std) / 3,)
        why = ""
        if len(mean) not in (0, 1, channels):
            why = f"the data has {channels} channels"
        elif not source.startswith("the run ") and first.is_floating_point() and _beyond_one(first):
            why = "the data is not in [0, 1]"
        if why:
            self._say(
                f"{why}, so inputs are normalised with the data's own statistics, not with "
                f"those of {source} ({told})"
            )
            return None
        self._say(
            f"inputs are normalised as those of {source} were (mean {_short(mean)}, std {_short(std)}); "
            "data.transform.normalize=data takes the data's own statistics"
        )
        return mean, std

    def _say(self, note: str) -> None:
        self.notes = (*self.notes, note)

    def _on_size(self, first: Tensor) -> tuple[str, ...]:
        size, here = tuple((self._inputs or {}).get("size") or ()), tuple(first.shape[2:])
        if len(size) != 2 or len(here) != 2 or size == here:
            return ()
        return (
            f"the weights were trained on images of {size[0]}×{size[1]} pixels, the data has "
            f"{here[0]}×{here[1]}; data/transform=resize "
            f"data.transform.size=[{size[0]},{size[1]}] gives them this size",
        )


def _beyond_one(first: Tensor) -> bool:
    return bool(first.min() < -0.01 or first.max() > 1.01)


def _short(values: tuple[float, ...]) -> str:
    return "[" + ", ".join(f"{value:.3g}" for value in values) + "]"


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
