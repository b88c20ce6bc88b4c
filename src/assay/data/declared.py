"""A data set as its YAML describes it: shapes and numbers of samples, and not one value read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, final

import torch

from assay.data.samples import Samples
from assay.task.language_modelling import run_lengths
from assay.task.task_of import task_of

if TYPE_CHECKING:
    from torch import Tensor

    from assay.task.task_name import TaskName

_DTYPES = {"uint8": torch.uint8, "float32": torch.float32, "int64": torch.int64}
_MOST, _MOST_CLASSES = 10**8, 10**6
"""Samples, or values of one: more would fill the memory while they are only counted."""


@final
class Declared:
    """Stands in for a source while a job is checked; takes no memory for the inputs.

    Args:
        task: What is predicted.
        input_shape: Of one sample as the source gives it, channels first.
        dtype: `uint8`, `float32`, or `int64` of token ids.
        vocab_size: Of token ids, which go from 0 to below this; 0: they are not.
        class_counts: Samples of each class in each subset the source comes in: `all`, or `train` and `test`.
        num_samples: Samples of each subset, where the classes are equally many, or where there are none.
        num_classes: With `num_samples`: classes, or labels of a multilabel task.
        num_targets: With `num_samples`: targets of a regression.
        class_names: One per class; numbers by default.

    Raises:
        ValueError: The description is incomplete or contradicts itself.

    >>> source = Declared("multiclass", [1, 8, 8], class_counts={"all": [3, 2]})
    >>> source.read()["all"].inputs.shape, source.read()["all"].targets.tolist()
    (torch.Size([5, 1, 8, 8]), [0, 0, 0, 1, 1])
    """

    def __init__(
        self,
        task: TaskName,
        input_shape: Sequence[int],
        *,
        dtype: str = "float32",
        vocab_size: int = 0,
        class_counts: Mapping[str, Sequence[int]] | None = None,
        num_samples: Mapping[str, int] | None = None,
        num_classes: int | None = None,
        num_targets: int | None = None,
        class_names: Sequence[str] | None = None,
    ) -> None:
        if dtype not in _DTYPES:
            raise ValueError(f"dtype={dtype!r}: one of {', '.join(_DTYPES)} was expected")
        if (dtype == "int64") != (vocab_size > 0):
            raise ValueError(
                f"vocab_size={vocab_size!r}: above 0 with dtype=int64, and only then, was expected"
            )
        self.task, kind = task, task_of(task)
        _check_numbers("input_shape", input_shape, least=1)
        for name, told in (("class_counts", class_counts), ("num_samples", num_samples)):
            if told is not None and not (isinstance(told, Mapping) and told.keys() & {"all", "train"}):
                raise ValueError(f"{name}={told!r}: a mapping with `all` or `train` was expected")
        for subset, counts in (class_counts or {}).items():
            _check_numbers(f"class_counts.{subset}", counts, least=0)
        for subset, number in (num_samples or {}).items():
            _check_numbers(f"num_samples.{subset}", [number], least=1)
        sizes = {"num_classes": num_classes, "num_targets": num_targets, "vocab_size": vocab_size or None}
        size = sizes.get(kind.size_key)
        if kind.learns_from_inputs:
            size = size or 0
        if class_counts is not None:
            if not kind.by_class:
                raise ValueError(
                    f"class_counts={class_counts!r}: a {task} task has none; num_samples was expected"
                )
            size = len(next(iter(class_counts.values())))
            if num_classes not in (None, size):
                raise ValueError(f"num_classes={num_classes}: {size}, as in class_counts, was expected")
            self._targets = {subset: _labels(counts) for subset, counts in class_counts.items()}
        elif num_samples is not None and size is not None:
            _check_numbers(kind.size_key, [size], least=not kind.learns_from_inputs, most=_MOST_CLASSES)
            self._targets = {
                subset: kind.declared_targets(number, size, input_shape, class_names or ())
                for subset, number in num_samples.items()
            }
        else:
            counts_or = "class_counts, or " if kind.by_class else ""
            raise ValueError(f"{counts_or}num_samples with {kind.size_key} was expected")
        names = class_names or [str(label) for label in range(size)]
        self.class_names = () if kind.has_real_targets else tuple(names)
        # Token ids from 1 on, as 0 would be padding.
        self._sample = torch.full((1, *input_shape), int(vocab_size > 0), dtype=_DTYPES[dtype])
        self._vocab_size = vocab_size

    def read(self) -> Mapping[str, Samples]:
        """Every subset: inputs that are one zero sample seen N times, and targets."""
        shape = self._sample.shape[1:]
        token_bytes = run_lengths([1] * self._vocab_size)  # scores are not looked at
        return {
            subset: Samples(
                self._sample.expand(len(targets), *shape),
                targets,
                vocab_size=self._vocab_size,
                token_bytes=token_bytes,
            )
            for subset, targets in self._targets.items()
        }


def _check_numbers(name: str, values: Any, least: int, most: int = _MOST) -> None:
    several = isinstance(values, Sequence) and not isinstance(values, str) and len(values) > 0
    if not several or any(type(value) is not int or not least <= value <= most for value in values):
        raise ValueError(f"{name}={values!r}: whole numbers from {least} to {most} were expected")


def _labels(counts: Sequence[int]) -> Tensor:
    return torch.arange(len(counts)).repeat_interleave(torch.as_tensor(counts))
