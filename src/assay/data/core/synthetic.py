from __future__ import annotations

from typing import TYPE_CHECKING, Literal, final

import torch

from assay.data.core.samples import Samples
from assay.data.core.source import Source
from assay.errors import check_numbers
from assay.task.task_of import task_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from torch import Tensor


_BLOCK = 1024


@final
class Synthetic(Source):
    """Classes with a random mean each, plus Gaussian noise.

    A sample is its class's mean; of a multilabel task the sum of the means of its labels (each on in three of
    ten samples); of a regression pure noise, with targets that are a random linear function of it. Means are
    drawn from a standard normal distribution, so noise of 1 is as strong as the signal in one value, and many
    values make the classes easy to tell apart.

    Args:
        task: What is predicted.
        num_samples: N.
        input_shape: Of one sample, channels first.
        num_classes: Classes, labels of a multilabel task, or targets of a regression.
        dtype: `float32`, or `uint8` (a deviation of 32 around 128, cut off at 0 and 255).
        noise: Standard deviation of the noise.
        seed: Of means and noise.

    Raises:
        ValueError: An argument is out of its range.
    """

    def __init__(
        self,
        task: str,
        num_samples: int,
        input_shape: Sequence[int],
        num_classes: int,
        *,
        dtype: Literal["float32", "uint8"] = "float32",
        noise: float = 1.0,
        seed: int = 0,
    ) -> None:
        self.task = task
        self._task = task_of(task)
        if self._task.num_classes not in (None, num_classes):
            raise ValueError(
                f"num_classes={num_classes}: a {task} task has {self._task.num_classes} classes"
            )
        check_numbers("[0, inf)", noise=noise)
        numbers = range(0 if self._task.has_real_targets else num_classes)
        self.class_names = tuple(f"class_{number}" for number in numbers)
        self._shape = tuple(input_shape)
        self._num_samples = num_samples
        self._num_classes = num_classes
        self._dtype = getattr(torch, dtype)
        self._noise = noise
        self._seed = seed

    def read(self) -> Mapping[str, Samples]:
        """All samples: inputs `[N, *input_shape]`, targets as the task has them."""
        generator = torch.Generator().manual_seed(self._seed)
        means = torch.randn(self._num_classes, *self._shape, generator=generator)
        targets = self._labels(generator)
        inputs = torch.empty(self._num_samples, *self._shape, dtype=self._dtype)
        values: list[Tensor] = []
        for start in range(0, self._num_samples, _BLOCK):
            block = inputs[start : start + _BLOCK]
            drawn = torch.randn(block.shape, generator=generator)
            if self._task.has_real_targets:
                values.append(drawn.flatten(1) @ means.flatten(1).T / means[0].numel() ** 0.5)
                values[-1] += self._noise * torch.randn(values[-1].shape, generator=generator)
            else:
                labels = targets[start : start + _BLOCK]
                if labels.ndim > 1:
                    sums = torch.einsum("bc,c...->b...", labels.float(), means)
                else:
                    sums = means[labels]
                drawn.mul_(self._noise).add_(sums)
            block.copy_(
                drawn
                if block.is_floating_point()
                else drawn.mul_(32).add_(128).round_().clamp_(0, 255)
            )
        return {"all": Samples(inputs, torch.cat(values) if values else targets)}

    def _labels(self, generator: torch.Generator) -> Tensor:
        # which are not used, but drawn like this
        if self._task.by_class or self._task.has_real_targets:
            labels = torch.arange(self._num_samples) % self._num_classes  # equally many of each
            return labels[torch.randperm(self._num_samples, generator=generator)]
        return (
            torch.rand(self._num_samples, self._num_classes, generator=generator) < 0.3
        ).long()
