"""Tensors and plain containers as `torch.load` reads them without code, and one number for all weights."""

from __future__ import annotations

import codecs
import hashlib
import json
from collections import Counter, OrderedDict
from collections.abc import Mapping
from pathlib import Path
from typing import Any, final

import numpy as np
import torch
from omegaconf import OmegaConf

from assay.torch_internals import is_traceable_wrapper_subclass, metadata_of, put_metadata

_AS_THEY_ARE = (
    bool,
    float,
    complex,
    str,
    bytes,
    type(None),
    torch.dtype,
    torch.device,
    torch.Size,
)
_NUMBERS_AND_BYTES = (bool, int, float, complex, bytes)
_LARGEST_INT_BITS = 2000
"""The reader knows integers of up to 255 bytes."""


@final
class EmptyBytes:
    """Reads back as `b""`, which pickle itself would store as a call that the restricted reader refuses."""

    def __reduce__(self) -> tuple[Any, ...]:
        return codecs.encode, ("", "latin1")


def plain(value: Any, key: str = "") -> Any:
    """A copy that `torch.load` reads back equal with its restricted reader; tensors are shared."""
    try:
        return _plain(value, key)
    except RecursionError as error:
        raise TypeError(
            f"a checkpoint cannot hold a container that contains itself, as {key or 'it'} does"
        ) from error


def plain_part(values: Any) -> tuple[dict[Any, Any], list[str]]:
    """The hyper-parameters that a checkpoint can hold, and the names of those that it cannot."""
    kept: dict[Any, Any] = {}
    dropped: list[str] = []
    if OmegaConf.is_config(values):
        values = OmegaConf.to_container(values)
    for name, value in values.items():
        try:
            kept.update(plain({name: value}))
        except TypeError as error:
            if isinstance(value, Mapping) and not isinstance(error.__cause__, RecursionError):
                kept[name], inside = plain_part(value)
                dropped += [f"{name}.{one}" for one in inside]
            else:
                dropped.append(str(name))
    return kept, dropped


def _plain(value: Any, key: str) -> Any:
    if type(value) in _AS_THEY_ARE and value != b"":
        return value
    if isinstance(value, torch.Tensor):
        return _tensor(value, key)
    if isinstance(value, dict | list | tuple | set | frozenset):
        return _container(value, key)
    return str(value) if isinstance(value, Path) else _scalar(value, key)


def _container(value: Any, key: str) -> Any:
    if isinstance(value, dict):
        return _mapping(value, key)
    kind: Any = next((kind for kind in (list, tuple) if isinstance(value, kind)), set)
    return kind(_plain(one, f"{key}[{index}]") for index, one in enumerate(value))


def _scalar(value: Any, key: str) -> Any:
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, int) and value.bit_length() > _LARGEST_INT_BITS:
        raise TypeError(
            f"a checkpoint holds integers of {_LARGEST_INT_BITS} bits, but {key or 'it'} is larger"
        )
    if isinstance(value, str):
        return str.__str__(value)  # of an enum's member too, whose own text is its name
    if isinstance(value, bytearray):
        value = bytes(value)
    kind: Any = next((kind for kind in _NUMBERS_AND_BYTES if isinstance(value, kind)), None)
    if kind is None:
        raise _refused(value, key)
    return kind(value) if value != b"" else EmptyBytes()


def _mapping(value: dict[Any, Any], key: str) -> dict[Any, Any]:
    items = (
        (_key(name, key), _plain(one, f"{key}.{name}" if key else str(name))) for name, one in value.items()
    )
    if isinstance(value, OrderedDict):
        ordered = OrderedDict(items)
        metadata = metadata_of(value)
        if metadata is not None:
            put_metadata(ordered, _plain(metadata, f"{key}._metadata"))
        return ordered
    return Counter(dict(items)) if isinstance(value, Counter) else dict(items)


def _key(name: Any, key: str) -> Any:
    where = f"a key of {key}" if key else "a key"
    if isinstance(name, torch.Tensor) or name == b"":
        raise _refused(name, where)
    return _plain(name, where)


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
