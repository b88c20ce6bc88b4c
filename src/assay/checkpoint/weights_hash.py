"""One number for all weights: equal when every bit of them is."""

from __future__ import annotations

import hashlib
import json
import math
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Mapping


def weights_sha256(state: Mapping[str, Any]) -> str:
    """SHA-256 over name, dtype, shape and bytes of every tensor, by name.

    The device does not matter, nor the memory format, nor in which order the tensors come.

    Args:
        state: A module's `state_dict()`; what is not a tensor does not count.

    >>> one = {"a": torch.zeros(2), "b": torch.ones(1)}
    >>> weights_sha256(one) == weights_sha256(dict(reversed(one.items())))
    True
    >>> weights_sha256(one) == weights_sha256({"a": torch.zeros(2), "b": -torch.ones(1)})
    False
    """
    digest = hashlib.sha256()
    for name, value in sorted(state.items()):
        if isinstance(value, torch.Tensor):
            whole = value.detach().to_dense() if value.layout is not torch.strided else value.detach()
            flat = whole.cpu().contiguous().reshape(-1)
            digest.update(json.dumps([name, str(value.dtype), list(value.shape)]).encode())
            digest.update(flat.view(torch.uint8).numpy().data)
    return digest.hexdigest()


def relative_difference(then: Mapping[str, Any], now: Mapping[str, Any]) -> float:
    """The largest difference of two tensors' elements to the largest element, over all tensors.

    Args:
        then: A module's `state_dict()`.
        now: Another one's; infinite where it has not the same tensors.

    >>> one = {"a": torch.tensor([4.0, 0.0]), "n": torch.tensor(3)}
    >>> relative_difference(one, {**one, "a": torch.tensor([4.0, 0.5])})
    0.125
    """
    one, other = ({n: t for n, t in state.items() if isinstance(t, torch.Tensor)} for state in (then, now))
    if {n: t.shape for n, t in one.items()} != {n: t.shape for n, t in other.items()}:
        return math.inf
    return max((_relative(one[name].double(), other[name].double()) for name in one), default=0.0)


def _relative(one: torch.Tensor, other: torch.Tensor) -> float:
    if torch.equal(one, other) or not one.numel():
        return 0.0
    size = float((one - other).abs().max() / torch.maximum(one.abs().max(), other.abs().max()))
    return size if math.isfinite(size) else math.inf
