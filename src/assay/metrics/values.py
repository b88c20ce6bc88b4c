"""What a metric computes: a scalar, a matrix, or a curve of several tensors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from torch import Tensor

LARGEST: Final = 100_000
"""Numbers of a matrix or curve that a record still keeps."""


def is_scalar(value: Any) -> bool:
    """Whether a value can be logged."""
    return isinstance(value, int | float) or (isinstance(value, Tensor) and value.numel() == 1)


def size(value: Any) -> int:
    """How many numbers a value has.

    Args:
        value: As for `listed`.

    >>> import torch
    >>> size((torch.zeros(3), [torch.zeros(2, 2), torch.tensor(1.0)]))
    8
    """
    if isinstance(value, Tensor):
        return value.numel()
    parts = value.values() if isinstance(value, Mapping) else value
    return sum(map(size, parts)) if isinstance(value, Mapping | list | tuple) else 1


def listed(value: Any) -> Any:
    """A value as nested lists: of a curve one list each, such as false and true positives and thresholds.

    Args:
        value: A tensor, a number, or a list, tuple or mapping of such.

    Raises:
        TypeError: It is something else.

    >>> import torch
    >>> listed((torch.tensor([0.0, 0.5]), torch.tensor([[1, 2]])))
    [[0.0, 0.5], [[1, 2]]]
    """
    if isinstance(value, Tensor) and not value.is_complex():
        return value.tolist()
    if isinstance(value, Mapping):
        return {str(name): listed(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [listed(one) for one in value]
    if isinstance(value, int | float):
        return value
    kind = str(value.dtype) if isinstance(value, Tensor) else type(value).__name__
    raise TypeError(f"it computes a {kind}, which can be neither logged nor kept")
