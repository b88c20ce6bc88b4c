"""All that assay uses of PyTorch without PyTorch promising it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensorMode,
    UnsupportedFakeTensorException,
    UnsupportedOperatorException,
)
from torch.utils._python_dispatch import TorchDispatchMode, is_traceable_wrapper_subclass
from torch.utils._pytree import tree_iter, tree_leaves, tree_map

if TYPE_CHECKING:
    from collections import OrderedDict

    from torch import Tensor
    from torch._C._distributed_c10d import Store, TCPStore

__all__ = [
    "DataDependentOutputException",
    "DynamicOutputShapeException",
    "FakeTensorMode",
    "TorchDispatchMode",
    "UnsupportedFakeTensorException",
    "UnsupportedOperatorException",
    "is_traceable_wrapper_subclass",
    "tree_iter",
    "tree_leaves",
    "tree_map",
]


def mark_non_finite(tensors: list[Tensor], mark: Tensor, one: Tensor) -> None:
    """Set `mark` to 1 where a number is not finite, as the scaler of mixed precision does; nothing waits.

    Args:
        tensors: Real and dense, of one device; written to, with what they hold.
        mark: A float32 scalar of that device.
        one: 1.0 as another.
    """
    torch._amp_foreach_non_finite_check_and_unscale_(tensors, mark, one)


def end_workers(batches: Any) -> None:
    """End the processes behind an iterator of a `DataLoader` now; nothing is done where it has none.

    Args:
        batches: What `iter(loader)` gave.
    """
    if hasattr(batches, "_shutdown_workers"):
        batches._shutdown_workers()


def default_store() -> Store:
    """What the processes of a distributed job share.

    Raises:
        ValueError: No process group was made.
    """
    store: Store = torch.distributed.distributed_c10d._get_default_store()
    return store


def tcp_store(*arguments: Any, **options: Any) -> TCPStore:
    """A store that processes on other machines can reach; see `torch.distributed.TCPStore`.

    Args:
        arguments: As `torch.distributed.TCPStore` takes them.
        options: As `torch.distributed.TCPStore` takes them.

    Raises:
        AttributeError: This build of PyTorch has no distributed training.
    """
    store: TCPStore = torch.distributed.TCPStore(*arguments, **options)  # type: ignore[attr-defined]  # it is there
    return store


def metadata_of(state_dict: OrderedDict[Any, Any]) -> Any:
    """The versions of modules that `Module.state_dict` keeps beside the tensors; None where there are none.

    Args:
        state_dict: Of a module.
    """
    return getattr(state_dict, "_metadata", None)


def put_metadata(state_dict: OrderedDict[Any, Any], metadata: Any) -> None:
    """Keep versions of modules beside the tensors, as `Module.state_dict` does.

    Args:
        state_dict: Changed in place.
        metadata: As `metadata_of` gives them.
    """
    state_dict._metadata = metadata  # type: ignore[attr-defined]  # an attribute of an OrderedDict


def multiplies_bfloat16() -> bool:
    """Whether this processor has instructions for products of bfloat16."""
    return bool(torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported())
