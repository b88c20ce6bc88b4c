"""Scaling on the device: inputs to [0, 1], then, as real targets, to zero mean and unit deviation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, final

import numpy as np
import torch
from torch import Tensor

from assay.task.task_of import task_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from assay.data.core.types import Pair


@final
class TargetScale:
    """`(targets - mean) / std` for the loss, and the way back for outputs."""

    def __init__(self, mean: Sequence[float] = (), std: Sequence[float] = ()) -> None:
        self._mean = tuple(mean)
        self._std = tuple(value or 1.0 for value in std)
        self._ready: dict[tuple[torch.device, torch.dtype, int], Pair] = {}

    def __bool__(self) -> bool:
        return bool(self._mean)

    def standardize(self, targets: Tensor) -> Tensor:
        """What the loss compares outputs with."""
        # Subtracted first: a single multiply-add would lose the digits of targets far from 0.
        mean, std = self._statistics(targets)
        return (targets - mean) / std

    def restore(self, outputs: Tensor) -> Tensor:
        """Outputs in the targets' own unit."""
        if not self._mean:
            return outputs
        mean, std = self._statistics(outputs)
        return torch.addcmul(mean, outputs, std)

    def _statistics(self, like: Tensor) -> Pair:
        dtype = torch.promote_types(like.dtype, torch.float32)
        key = (like.device, dtype, like.ndim)
        if key not in self._ready:
            self._ready[key] = _place(self._mean, like, dtype), _place(self._std, like, dtype)
        return self._ready[key]


def _place(values: Any, like: Tensor, dtype: torch.dtype) -> Tensor:
    """A value for each channel or feature of a batch, on its device."""
    # Two steps, because some devices have no float64.
    placed = torch.tensor(values, dtype=torch.float64).view(-1, *[1] * max(0, like.ndim - 2))
    return placed.to(dtype).to(like.device)


def target_scale(spec: Mapping[str, Any]) -> TargetScale:
    """That of a run; one that changes nothing where the loss itself does what there is to do."""
    if "task" in spec:
        task = task_of(spec["task"])
        if task.has_real_targets or task.reconstructs:
            return TargetScale(spec.get("target_mean") or (), spec.get("target_std") or ())
    return TargetScale()


IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)
_HISTOGRAM_CHANNELS = 16
_DTYPES = {"64-true": torch.float64, "bf16-true": torch.bfloat16, "16-true": torch.float16}


def input_dtype(precision: str, stored: str = "float32") -> torch.dtype:
    """Type of the inputs that a model gets."""
    dtype: torch.dtype = getattr(torch, stored)
    if _is_index(dtype):
        return torch.int64
    return _DTYPES.get(precision, torch.float32)


def stored_type(dtype: torch.dtype) -> str:
    """What a data set holds, as `Spec.input_dtype` names it."""
    if _is_index(dtype):
        return "int64"
    return str(dtype).removeprefix("torch.")


def _is_index(dtype: torch.dtype) -> bool:
    """Whether numbers of a type are taken as they are, such as token ids."""
    return not (dtype.is_floating_point or dtype.is_complex) and dtype not in (
        torch.uint8,
        torch.bool,
    )


@final
class Normalize:
    """`(x - mean) / std` over dimension 1 of a batch; uint8 is divided by 255 first.

    The last columns may hold codes of categories, of which a model that does not take codes gets a column
    for each category.
    """

    def __init__(
        self,
        mean: Sequence[float] = (),
        std: Sequence[float] = (),
        one_hot: Sequence[int] = (),
    ) -> None:
        self.mean = tuple(mean)
        self.std = tuple(value or 1.0 for value in std)
        self._one_hot = tuple(one_hot)
        self._ready: dict[tuple[torch.device, torch.dtype, int, bool], Pair] = {}

    def __call__(self, inputs: Tensor, dtype: torch.dtype) -> Tensor:
        """Convert and scale a batch."""
        if _is_index(inputs.dtype):
            return inputs.long()
        if self._one_hot:
            inputs = expand_categories(inputs, self._one_hot)
        is_byte = inputs.dtype == torch.uint8
        if not self.mean:
            if is_byte:
                return inputs.to(dtype).div_(255)
            return inputs.to(dtype)
        # Floats are scaled as such: of 1.7e9 and more 32 bits keep no units, of 300 and more 16 bits.
        exact = dtype
        if inputs.is_floating_point():
            exact = torch.promote_types(inputs.dtype, dtype)
        shift, scale = self._statistics(inputs, exact, is_byte)
        # One multiply-add instead of a division by 255, a subtraction and a division.
        return torch.addcmul(shift, inputs.to(exact), scale).to(dtype)

    def denormalize(self, inputs: Tensor) -> Tensor:
        """What was normalised in the unit from before; bytes as floats from 0 to 1."""
        if not self.mean:
            return inputs
        mean, std = (_place(values, inputs, torch.float32) for values in (self.mean, self.std))
        return inputs * std + mean

    def _statistics(self, like: Tensor, dtype: torch.dtype, is_byte: bool) -> Pair:
        key = (like.device, dtype, like.ndim, is_byte)
        if key not in self._ready:
            std = np.array(self.std)
            if is_byte:
                scale = 1 / (std * 255)
            else:
                scale = 1 / std
            self._ready[key] = (
                _place(-np.array(self.mean) / std, like, dtype),
                _place(scale, like, dtype),
            )
        return self._ready[key]


def expand_categories(inputs: Tensor, sizes: Sequence[int]) -> Tensor:
    """A column for each category whose codes the last columns hold: `[B, N + len(sizes)]` to `[B, F]`.

    A code that is no category of its column becomes zeros.
    """
    numbers = inputs.shape[1] - len(sizes)
    columns = [inputs[:, :numbers]]
    for place, size in enumerate(sizes, start=numbers):
        codes = torch.arange(size, device=inputs.device)
        columns.append((inputs[:, place : place + 1] == codes).to(inputs.dtype))
    return torch.cat(columns, 1)


def category_shares(blocks: Iterable[Tensor], sizes: Sequence[int]) -> Tensor:
    """Share of each category, float64 `[sum(sizes)]`, by the codes in the last columns."""
    counts = [torch.zeros(size + 1, dtype=torch.int64) for size in sizes]
    total = 0
    for block in blocks:
        total += len(block)
        codes = block[:, -len(sizes) :].long()
        for place, size in enumerate(sizes):
            counts[place] += codes[:, place].bincount(minlength=size + 1)
    return torch.cat([count[:-1] for count in counts]).double() / total


def one_hot_sizes(spec: Mapping[str, Any]) -> tuple[int, ...]:
    """Sizes of the categories of a table that its model gets as columns; none where it takes their codes."""
    if spec.get("cardinalities"):
        return ()
    return tuple(spec.get("categories") or ())


def stored_shape(spec: Mapping[str, Any]) -> tuple[int, ...]:
    """Shape of a sample as the data holds it, in which a category is one code."""
    shape = tuple(spec.get("input_shape") or ())
    sizes = one_hot_sizes(spec)
    if not sizes:
        return shape
    return (shape[0] - sum(sizes) + len(sizes),)


def statistics(blocks: Iterable[Tensor]) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and deviation of each channel or feature, in one pass, double precision and bounded memory.

    Moments are merged block by block as in Chan, Golub and LeVeque, "Updating formulae and a pairwise
    algorithm for computing sample variances" (1979); of bytes a histogram is exact and ten times as fast.
    """
    count = 0
    mean = squares = torch.zeros((), dtype=torch.float64)
    for block in blocks:
        size = block.numel() // block.shape[1]
        is_image = (
            block.dtype == torch.uint8
            and block.ndim > 2
            and block.shape[1] <= _HISTOGRAM_CHANNELS
        )
        if is_image:
            block_mean, block_squares = _byte_moments(block)
        else:
            block_mean, block_squares = _moments(block)
        delta = block_mean - mean
        total = count + size
        mean = mean + delta * (size / total)
        squares = squares + block_squares + delta.square() * (count * size / total)
        count = total
    return tuple(mean.tolist()), tuple((squares / count).sqrt().tolist())


def _moments(block: Tensor) -> Pair:
    values = block.to(torch.float64).transpose(0, 1).flatten(1)
    if block.dtype == torch.uint8:
        values = values / 255
    mean = values.mean(1)
    return mean, (values - mean[:, None]).square_().sum(1)


def _byte_moments(block: Tensor) -> Pair:
    channels = block.unbind(1)
    counts = torch.stack([one.flatten().bincount(minlength=256) for one in channels]).double()
    levels = torch.arange(256).double() / 255
    mean = (counts * levels).sum(1) / counts.sum(1)
    return mean, (counts * (levels - mean[:, None]).square()).sum(1)


def have_same_scaling(one: Tensor, other: Tensor) -> bool:
    """Whether `Normalize` does the same to both: two types of floats, or the same type."""
    return one.dtype == other.dtype or (one.is_floating_point() and other.is_floating_point())
