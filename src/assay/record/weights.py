"""One number for all weights: equal when every bit of them is."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Mapping


def weights_sha256(state: Mapping[str, Any]) -> str:
    """SHA-256 over name, dtype, shape and bytes of every tensor, by name.

    The device does not matter, nor the memory format, nor in which order the tensors come.

    Args:
        state: A module's `state_dict()`; what is no tensor does not count.

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
