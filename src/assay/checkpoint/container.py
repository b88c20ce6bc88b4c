"""Tensors and plain containers as `torch.load` reads them without code, and one number for all weights."""

from __future__ import annotations

import hashlib
import json
from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from omegaconf import OmegaConf

from assay.torch_internals import is_traceable_wrapper_subclass, metadata_of, put_metadata

_AS_THEY_ARE = (bool, int, float, complex, str, type(None), torch.dtype, torch.device, torch.Size)
_NUMBERS = (bool, int, float, complex)


def plain(
    value: Any, key: str = "", take: Callable[[torch.Tensor], torch.Tensor] = lambda tensor: tensor
) -> Any:
    """A copy that `torch.load` reads back equal with its restricted reader, of tensors what `take` makes."""
    if type(value) in _AS_THEY_ARE:
        return value
    if isinstance(value, torch.Tensor):
        return take(_tensor(value, key))
    if isinstance(value, dict):
        return _mapping(value, key, take)
    if isinstance(value, list | tuple | set | frozenset):
        kind: Any = next((kind for kind in (list, tuple) if isinstance(value, kind)), set)
        return kind(plain(one, f"{key}[{index}]", take) for index, one in enumerate(value))
    return _scalar(value, key)


def _scalar(value: Any, key: str) -> Any:
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, bytes | bytearray) and value:  # pickle stores empty ones as a call
        return bytes(value)
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, str):
        return str.__str__(value)  # of an enum's member too, whose own text is its name
    for number in _NUMBERS:
        if isinstance(value, number):
            return number(value)  # type: ignore[arg-type]  # it is one
    raise _refused(value, key)


def plain_part(values: Any) -> tuple[dict[Any, Any], list[str]]:
    """The hyper-parameters that a checkpoint can hold, and the names of those that it cannot."""
    kept: dict[Any, Any] = {}
    dropped: list[str] = []
    if OmegaConf.is_config(values):
        values = OmegaConf.to_container(values)
    for name, value in values.items():
        try:
            kept.update(plain({name: value}))
        except (TypeError, RecursionError) as error:
            if isinstance(value, Mapping) and isinstance(error, TypeError):
                kept[name], inside = plain_part(value)
                dropped += [f"{name}.{one}" for one in inside]
            else:
                dropped.append(str(name))
    return kept, dropped


def _mapping(value: dict[Any, Any], key: str, take: Callable[[torch.Tensor], torch.Tensor]) -> dict[Any, Any]:
    where = f"a key of {key}" if key else "a key"
    items = [(name, plain(one, f"{key}.{name}" if key else str(name), take)) for name, one in value.items()]
    if any(isinstance(name, torch.Tensor) for name, _ in items):
        raise TypeError(
            f"a checkpoint holds only tensors and plain containers, but {where} is a torch.Tensor"
        )
    items = [(plain(name, where), one) for name, one in items]
    if isinstance(value, OrderedDict):
        ordered = OrderedDict(items)
        metadata = metadata_of(value)
        if metadata is not None:
            put_metadata(ordered, plain(metadata, f"{key}._metadata"))
        return ordered
    return Counter(dict(items)) if isinstance(value, Counter) else dict(items)


def _tensor(value: torch.Tensor, key: str) -> torch.Tensor:
    # A wrapper, such as a sharded tensor, has no memory of its own.
    wrapper: bool = is_traceable_wrapper_subclass(value)
    if wrapper or torch.nn.parameter.is_lazy(value):
        raise _refused(value, key)
    # Attributes of a tensor may be anything; detaching leaves them behind.
    if isinstance(value, torch.nn.Parameter) or vars(value):
        value = value.detach()
    return value if type(value) is torch.Tensor else value.as_subclass(torch.Tensor)


def _refused(value: Any, key: str) -> TypeError:
    kind = f"{type(value).__module__}.{type(value).__qualname__}"
    return TypeError(f"a checkpoint holds only tensors and plain containers, but {key or 'it'} is a {kind}")


def weights_sha256(state: Mapping[str, Any]) -> str:
    """SHA-256 over name, dtype, shape and bytes of every tensor, by name."""
    digest = hashlib.sha256()
    for name, value in sorted(state.items()):
        if isinstance(value, torch.Tensor):
            whole = value.detach().to_dense() if value.layout is not torch.strided else value.detach()
            flat = whole.cpu().contiguous().reshape(-1)
            digest.update(json.dumps([name, str(value.dtype), list(value.shape)]).encode())
            digest.update(flat.view(torch.uint8).numpy().data)
    return digest.hexdigest()
