"""torchvision transforms on samples and whole batches, and what stands under `data.transform`."""

from __future__ import annotations

import math
import random
from contextlib import suppress
from itertools import repeat, takewhile
from typing import TYPE_CHECKING, Any, final

import numpy as np
import torch
from lightning.pytorch.utilities.seed import isolate_rng
from torchvision import tv_tensors  # type: ignore[import-untyped]  # torchvision ships no types
from torchvision.transforms import v2  # type: ignore[import-untyped]  # torchvision ships no types

from assay.data.core.normalize import IMAGENET_MEAN, IMAGENET_STD
from assay.errors import DataError, user_frame
from assay.splitmix import mix
from assay.task.segmentation import IGNORED
from assay.torch_internals import tree_leaves

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from torch import Tensor

    from assay.data.core.types import Pair


_LIFT = 1 << 16
"""Added to the classes of a mask while it is transformed."""
_DETERMINISTIC = (
    *(
        torch.nn.Identity,
        v2.CenterCrop,
        v2.ConvertImageDtype,
        v2.Grayscale,
        v2.Identity,
        v2.Normalize,
    ),
    *(v2.Pad, v2.Resize, v2.RGB, v2.ToDtype, v2.ToImage, v2.ToPureTensor),
)


@final
class Transforms:
    """A chain of torchvision (v2) transforms."""

    def __init__(
        self,
        transforms: Iterable[Callable[[Any], Any]] = (),
        keys: Sequence[str] = (),
        *,
        masks: bool = False,
    ) -> None:
        named = zip(transforms, keys or repeat("data.transform"), strict=False)
        flat = [(one, key) for transform, key in named for one in _flatten([transform])]
        self.transforms = tuple(one for one, _ in flat)
        self.keys = tuple(key for _, key in flat)
        self.masks = masks

    def __bool__(self) -> bool:
        return bool(self.transforms)

    @property
    def deterministic(self) -> bool:
        """Whether the result depends on the input alone, as far as that is known."""
        return all(type(transform) in _DETERMINISTIC for transform in self.transforms)

    def divide(self) -> tuple[Transforms, Transforms]:
        """The deterministic transforms the chain starts with, to be applied only once, and the rest."""
        length = len(
            list(takewhile(lambda transform: type(transform) in _DETERMINISTIC, self.transforms))
        )
        head = Transforms(self.transforms[:length], self.keys[:length], masks=self.masks)
        return head, Transforms(self.transforms[length:], self.keys[length:], masks=self.masks)

    def pair(self, inputs: Any, targets: Any, key: tuple[int, ...]) -> tuple[Any, Any]:
        """Transform one sample and, where it is a mask, its target; draws are a function of `key` alone."""
        if not self.deterministic:
            seed_generators(key)
        return self._apply_to_both(inputs, targets)

    def pairs(self, inputs: Tensor, targets: Tensor, seed: int, epoch: int, keys: Tensor) -> Pair:
        """Transform a batch and, where these are masks, its targets."""
        if self.deterministic:
            return self._apply_to_both(inputs, targets)
        keyed = zip(inputs, targets, keys.tolist(), strict=True)
        samples, masks = zip(
            *(self.pair(sample, target, (seed, epoch, key)) for sample, target, key in keyed),
            strict=True,
        )
        return stack(samples), stack(masks) if self.masks else targets

    def transform_inputs(self, inputs: Tensor) -> Tensor:
        """Transform a batch whose targets are not known."""
        chain = Transforms(self.transforms, self.keys)
        return chain.pairs(inputs, torch.zeros(len(inputs)), 0, 0, torch.arange(len(inputs)))[0]

    def _apply_to_both(self, inputs: Any, targets: Any) -> tuple[Any, Any]:
        if self.masks and self.transforms:
            return self._apply_jointly(inputs, torch.as_tensor(targets))
        return self._apply(inputs), targets

    def _apply_jointly(self, inputs: Tensor, masks: Tensor) -> Pair:
        # What a transform fills in, whatever number that is, is not one of the classes.
        lifted = tv_tensors.Mask(masks.to(torch.int32) + _LIFT)
        image, mask = self._apply((tv_tensors.Image(inputs), lifted))
        if not isinstance(mask, tv_tensors.Mask) or mask.shape[-2:] != image.shape[-2:]:
            raise DataError(
                f"data.transform: {', '.join(type(step).__name__ for step in self.transforms)} make a "
                f"image {list(image.shape)} with a {type(mask).__name__} {list(mask.shape)}; expected a "
                "Mask of the same height and width",
                hint="take transforms of torchvision.transforms.v2, without ToPureTensor, which change both",
            )
        mask = mask.as_subclass(torch.Tensor)
        mask = torch.where(mask < _LIFT, IGNORED, mask - _LIFT).to(masks.dtype)
        return image.as_subclass(torch.Tensor), mask

    def _apply(self, inputs: Any) -> Any:
        for transform, key in zip(self.transforms, self.keys, strict=True):
            try:
                inputs = transform(inputs)
            except (KeyError, RuntimeError, TypeError, ValueError) as error:
                if user_frame(error):
                    raise  # of a custom transform, whose file and line are told
                first = inputs
                if isinstance(inputs, tuple):
                    first = inputs[0]
                shape = tuple(getattr(first, "shape", ()))
                raise DataError(
                    f"{key}: {type(transform).__name__} cannot take an input of shape {shape}: {error}",
                    hint="change data.transform.train and data.transform.eval, or data/transform=none",
                ) from error
        return inputs


def shared_resize(chains: Iterable[Transforms]) -> v2.Resize | None:
    """The scaling that all chains begin with; None where they do not, or it changes what was scaled so."""
    firsts: list[Any] = [next(iter(chain.transforms), None) for chain in chains]
    first = firsts[0]
    if len(set(map(str, firsts))) > 1 or type(first) is not v2.Resize:
        return None
    if first.max_size is not None or first.size is None:
        return None
    return first


def seed_generators(key: tuple[int, ...]) -> None:
    """Seed the global generators of torch (CPU), numpy and random."""
    seed = mix(*key)
    torch.default_generator.manual_seed(seed)
    random.seed(seed)
    np.random.seed(seed & 0xFFFFFFFF)


def describe_draws(read: Callable[[], Any]) -> str:
    """Say that a sample differs when it is read again with the same seed; empty where it does not."""
    readings = []
    with isolate_rng(include_cuda=False):
        for _ in range(2):
            seed_generators((0,))
            numbers = [torch.as_tensor(leaf) for leaf in tree_leaves(read()) if _is_numeric(leaf)]
            readings.append([tensor.double().nan_to_num() for tensor in numbers])
    if all(map(torch.equal, *readings)):
        return ""
    return (
        "differs when it is read again with the same seed, so a resumed run is not exact; draw from "
        "the global generators of torch, NumPy or random, which are seeded for each sample"
    )


def _is_numeric(leaf: Any) -> bool:
    if isinstance(leaf, np.ndarray):
        return leaf.dtype.kind in "biuf"
    if isinstance(leaf, torch.Tensor):
        return leaf.layout == torch.strided
    return isinstance(leaf, float | int)


def stack(samples: Sequence[Any]) -> Tensor:
    """`torch.stack` with a message that tells what to do about images of several sizes."""
    shapes = {tuple(sample.shape): None for sample in samples}
    if len(shapes) > 1:
        raise DataError(
            f"data: samples of shapes {', '.join(map(str, list(shapes)[:3]))} cannot make up one batch",
            hint="bring them to one size: data/transform=resize, or data.source.image_size=[224,224]",
        )
    return torch.stack(list(samples))


def _flatten(transforms: Iterable[Any]) -> Iterator[Callable[[Any], Any]]:
    for transform in transforms:
        if type(transform) is v2.Compose:
            yield from _flatten(transform.transforms)
        else:
            yield transform


Scale = tuple[tuple[float, ...], tuple[float, ...]]
"""Mean and deviation, a value a channel or feature each."""


def pretrained_scale(
    known: Mapping[str, Any] | None, normalize: Any, first: Tensor, typed: Scale | None
) -> tuple[Scale | None, list[str]]:
    """What `data.transform.normalize=auto` makes of what weights were trained with, and notes on it."""
    if known is None:
        return None, []
    source = known["source"]
    mean = known["mean"]
    std = known["std"]
    statistics = f"mean {_short(mean)}, std {_short(std)}"
    notes = list[str]()
    size = tuple(known.get("size") or ())
    data_size = tuple(first.shape[2:])
    if len(size) == len(data_size) == 2 and size != data_size:
        notes.append(
            f"the weights were trained on images of {size[0]}×{size[1]} pixels, the data has "
            f"{data_size[0]}×{data_size[1]}; data/transform=resize data.transform.size=[{size[0]},{size[1]}] "
            "gives them this size"
        )
    if normalize != "auto":
        if typed != (mean, std):
            notes.append(
                f"data.transform.normalize={normalize}: the weights of {source} were trained with "
                f"{statistics}; data.transform.normalize=auto takes these"
            )
        return None, notes
    channels = first.shape[1]
    is_beyond_one = first.is_floating_point() and bool(first.min() < -0.01 or first.max() > 1.01)
    why = ""
    if is_beyond_one and not source.startswith("the run "):
        why = "the data is not in [0, 1]"
    if channels == 1 and len(mean) == 3:  # a grey image is one whose channels are equal
        mean = (sum(mean) / 3,)
        std = (sum(std) / 3,)
    elif len(mean) not in (0, 1, channels):
        why = f"the data has {channels} channels"
    if why:
        fallback = "inputs are normalised with the data's own statistics"
        return None, [*notes, f"{why}, so {fallback}, not with those of {source} ({statistics})"]
    notes.append(
        f"inputs are normalised as those of {source} were (mean {_short(mean)}, std {_short(std)}); "
        "data.transform.normalize=data takes the data's own statistics"
    )
    return (mean, std), notes


def _short(values: tuple[float, ...]) -> str:
    return "[" + ", ".join(f"{value:.3g}" for value in values) + "]"


def chain_of(transform: Mapping[str, Any], name: str) -> Transforms:
    """A chain of transforms."""
    chain = transform.get(name, ())
    if not isinstance(chain, list | tuple) or not all(map(callable, chain)):
        raise DataError(
            f"data.transform.{name}: expected a list of transforms (nodes with a _target_), got {chain!r}",
            hint=f"data.transform.{name}=[]",
        )
    return Transforms(chain, [f"data.transform.{name}[{index}]" for index in range(len(chain))])


def configured_scale(by: Any) -> Scale | None:
    """The mean and std that are given, or None where the data's own are wanted."""
    if by is None:
        return (), ()
    if by in ("auto", "data"):
        return None
    if by == "imagenet":
        return IMAGENET_MEAN, IMAGENET_STD
    with suppress(KeyError, TypeError, ValueError):
        mean = tuple(map(float, by["mean"]))
        std = tuple(map(float, by["std"]))
        if len(mean) == len(std) and all(map(math.isfinite, (*mean, *std))) and min(std) > 0:
            return mean, std
    raise DataError(
        f"data.transform.normalize: expected auto, data, imagenet, null or a mapping of mean and std (above "
        f"0), got {by!r}",
        hint="data.transform.normalize={mean: [0.5], std: [0.5]}, with one value a channel",
    )


def check_scale(inputs: Tensor, scale: Scale | None) -> Scale | None:
    """The mean and std that are given, where they fit the samples."""
    if scale and scale[0] and not (inputs.is_floating_point() or inputs.dtype == torch.uint8):
        raise DataError(
            f"data.transform.normalize: the inputs are {inputs.dtype}, which cannot be normalised",
            hint="data.transform.normalize=null",
        )
    if scale is not None and len(scale[0]) not in (0, 1, inputs.shape[1]):
        raise DataError(
            f"data.transform.normalize: {len(scale[0])} values for inputs of {inputs.shape[1]} channel(s)",
            hint="data.transform.normalize=data, or make images RGB with torchvision.transforms.v2.RGB",
        )
    return scale
