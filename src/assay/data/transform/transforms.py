"""torchvision transforms on samples and on whole batches, without sharing one random draw between samples."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any, final

import numpy as np
import torch
from torchvision.transforms import v2  # type: ignore[import-untyped]  # torchvision ships no types

from assay.errors import DataError
from assay.splitmix import mix

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from torch import Tensor

_DETERMINISTIC = (
    torch.nn.Identity,
    v2.CenterCrop,
    v2.ConvertImageDtype,
    v2.Grayscale,
    v2.Identity,
    v2.Normalize,
    v2.Pad,
    v2.Resize,
    v2.RGB,
    v2.ToDtype,
    v2.ToImage,
    v2.ToPureTensor,
)


@final
class Transforms:
    """A chain of torchvision (v2) transforms.

    A v2 transform given a batch draws its random numbers once for the whole of it, which is not what anyone
    means by "random crop"; so a chain with a random member runs sample by sample, and one without runs on the
    batch.

    Args:
        transforms: Callables on `[C, H, W]` or `[B, C, H, W]` tensors.
        keys: The full key of each, for messages.
    """

    def __init__(
        self, transforms: Iterable[Callable[[Tensor], Tensor]] = (), keys: Sequence[str] = ()
    ) -> None:
        given = list(transforms)
        named = zip(given, keys or ["data.transform"] * len(given), strict=True)
        flat = [(one, key) for transform, key in named for one in _flat([transform])]
        self.transforms, self.keys = tuple(one for one, _ in flat), tuple(key for _, key in flat)

    def __bool__(self) -> bool:
        return bool(self.transforms)

    @property
    def deterministic(self) -> bool:
        """Whether the result depends on the input alone, as far as that is known."""
        return all(type(transform) in _DETERMINISTIC for transform in self.transforms)

    def divide(self) -> tuple[Transforms, Transforms]:
        """The deterministic transforms the chain starts with, to be applied only once, and the rest.

        >>> head, tail = Transforms([v2.Resize(8), v2.RandomCrop(4), v2.Pad(1)]).divide()
        >>> len(head.transforms), len(tail.transforms)
        (1, 2)
        """
        length = 0
        while length < len(self.transforms) and type(self.transforms[length]) in _DETERMINISTIC:
            length += 1
        head, tail = self.keys[:length], self.keys[length:]
        return Transforms(self.transforms[:length], head), Transforms(self.transforms[length:], tail)

    def sample(self, inputs: Any, key: tuple[int, ...]) -> Any:
        """Transform one sample; the random numbers are a function of `key` alone.

        Args:
            inputs: One input.
            key: Such as (seed, epoch, index).

        Raises:
            DataError: A transform does not take this input.
        """
        if not self.deterministic:
            seed_generators(key)
        return self._apply(inputs)

    def batch(self, inputs: Tensor, seed: int, epoch: int, keys: Tensor) -> Tensor:
        """Transform a batch.

        Args:
            inputs: `[B, C, H, W]`.
            seed: Of the run.
            epoch: From 0.
            keys: int64 `[B]`, the samples' indices in their data set.

        Raises:
            DataError: A transform does not take these inputs, or makes samples of several shapes.
        """
        if not self.transforms:
            return inputs
        if self.deterministic:
            transformed: Tensor = self._apply(inputs)
            return transformed
        samples = [
            self.sample(one, (seed, epoch, key)) for one, key in zip(inputs, keys.tolist(), strict=True)
        ]
        return stack(samples)

    def _apply(self, inputs: Any) -> Any:
        for transform, key in zip(self.transforms, self.keys, strict=True):
            try:
                inputs = transform(inputs)
            except (KeyError, RuntimeError, TypeError, ValueError) as error:
                if not type(transform).__module__.startswith("torchvision."):
                    raise  # a transform of somebody's own, whose file and line are told
                what = (
                    f"of shape {tuple(inputs.shape)}"
                    if isinstance(inputs, torch.Tensor)
                    else repr(type(inputs))
                )
                raise DataError(
                    f"{key}: {type(transform).__name__} cannot take an input {what}: {error}",
                    hint="change data.transform.train and data.transform.eval, or data/transform=none",
                ) from error
        return inputs


def seed_generators(key: tuple[int, ...]) -> None:
    """Seed the global generators of torch (CPU), numpy and random.

    That they are global does no harm: they are seeded again before each training step.

    Args:
        key: Such as (seed, epoch, index).
    """
    seed = mix(*key)
    torch.default_generator.manual_seed(seed)
    random.seed(seed)
    np.random.seed(seed & 0xFFFFFFFF)


def stack(samples: list[Any]) -> Tensor:
    """`torch.stack` with a message that tells what to do about images of several sizes.

    Args:
        samples: Tensors.

    Raises:
        DataError: They have several shapes.
    """
    shapes = {tuple(sample.shape): None for sample in samples}
    if len(shapes) > 1:
        raise DataError(
            f"data: samples of shapes {', '.join(map(str, list(shapes)[:3]))} cannot make up one batch",
            hint="bring them to one size: data/transform=resize, or data.source.image_size=[224,224]",
        )
    return torch.stack(samples)


def _flat(transforms: Iterable[Any]) -> Iterator[Callable[[Any], Any]]:
    for transform in transforms:
        if type(transform) is v2.Compose:
            yield from _flat(transform.transforms)
        else:
            yield transform
