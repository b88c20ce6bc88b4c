"""All that assay uses of PyTorch without PyTorch promising it."""

from __future__ import annotations

import ctypes
import math
import mmap
from typing import TYPE_CHECKING, Any

import torch
import torch.optim.optimizer as of_torch
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensorMode,
    UnsupportedFakeTensorException,
    UnsupportedOperatorException,
)
from torch.autograd import profiler
from torch.autograd.graph import _engine_run_backward
from torch.optim import Optimizer
from torch.utils._python_dispatch import TorchDispatchMode, is_traceable_wrapper_subclass
from torch.utils._pytree import tree_iter, tree_leaves, tree_map

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

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


MODULE_CALL = torch.nn.Module._call_impl.__code__
"""What runs whenever a module is called; a frame of it holds the module and its inputs."""


_M_TRIM_THRESHOLD = -1
_M_MMAP_MAX = -4


def keep_freed_memory() -> None:
    """Have glibc reuse what is freed; else the kernel maps and clears each step's large tensors anew.

    See mallopt(3). With another allocator nothing changes, nor where large tensors do not begin at pages (see
    `assay.__init__`): what is freed would fit nothing aligned that comes later, and memory would grow.
    """
    libc: Any = ctypes.CDLL(None)
    if (
        hasattr(libc, "mallopt")
        and torch.empty(1 << 22, dtype=torch.uint8).data_ptr() % mmap.PAGESIZE == 0
    ):
        libc.mallopt(_M_MMAP_MAX, 0)
        libc.mallopt(_M_TRIM_THRESHOLD, -1)


def widest_float(device: torch.device) -> torch.dtype:
    """Return the widest floating-point type of a device; `mps` has no float64."""
    if device.type == "mps":
        return torch.float32
    return torch.float64


def mark_non_finite(tensors: list[Tensor], mark: Tensor, one: Tensor) -> None:
    """Set `mark` to 1 where a number is not finite, as the scaler of mixed precision does; nothing waits."""
    try:
        torch._amp_foreach_non_finite_check_and_unscale_(tensors, mark, one)
    except NotImplementedError:  # of bfloat16 on CUDA
        largest = torch.nn.utils.get_total_norm(tensors, math.inf)
        mark.masked_fill_(largest.isfinite().logical_not(), 1)


def run_backward(loss: Tensor) -> None:
    """As `loss.backward()`; of a plain scalar without the questions that it asks of all that may come."""
    if (
        type(loss) is torch.Tensor
        and loss.ndim == 0
        and loss.requires_grad
        and not loss.is_complex()
    ):
        one = (torch.ones_like(loss),)
        _engine_run_backward(
            (loss,), one, False, False, (), allow_unreachable=True, accumulate_grad=True
        )
    else:
        loss.backward()  # type: ignore[no-untyped-call]  # torch left it untyped


def lean_zero_grad(optimizer: Optimizer) -> Callable[[], None]:
    """`optimizer.zero_grad` without its mark for torch's profiler, which takes longer than all the rest."""
    if type(optimizer).zero_grad is not Optimizer.zero_grad or "zero_grad" in vars(optimizer):
        return optimizer.zero_grad

    def zero_grad() -> None:
        if profiler._is_profiler_enabled:
            optimizer.zero_grad()
            return
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                parameter.grad = None

    return zero_grad


def lean_step(optimizer: Optimizer) -> tuple[Callable[[], bool], Callable[[], None]] | None:
    """`optimizer.step` where the gradients are there, without its mark for torch's profiler."""
    kind = type(optimizer)
    own = vars(optimizer).get("step")
    raw = getattr(kind.step, "__wrapped__", None)
    known = kind.__module__.startswith("torch.optim.") and kind is not torch.optim.LBFGS
    ours = own is None or hasattr(own, "_wrapped_by_lr_sched")
    if not (known and ours and raw is not None and hasattr(kind.step, "hooked")):
        return None
    before = optimizer._optimizer_step_pre_hooks
    after = optimizer._optimizer_step_post_hooks
    others = of_torch._global_optimizer_pre_hooks, of_torch._global_optimizer_post_hooks
    usual = len(before)
    if not all(getattr(hook, "any_time", False) for hook in before.values()):
        return None

    def may_be_used() -> bool:
        hooked = len(before) != usual or after or others[0] or others[1]
        return not (hooked or profiler._is_profiler_enabled)

    def step() -> None:
        for hook in before.values():
            hook(optimizer, (optimizer,), {})
        optimizer._opt_called = True  # type: ignore[attr-defined]  # schedulers look whether it was
        raw(optimizer)

    return may_be_used, step


def start_workers(loader: Any) -> Iterator[Any]:
    """Iterate over a `DataLoader`; freed memory, which forked processes would hold on, goes back before."""
    libc: Any = ctypes.CDLL(None)
    forks = getattr(loader, "num_workers", 0) and getattr(loader, "_iterator", None) is None
    if forks and hasattr(libc, "malloc_trim"):  # of glibc
        libc.malloc_trim(0)
    return iter(loader)


def end_workers(batches: Any) -> None:
    """End the processes behind an iterator of a `DataLoader` now; nothing is done where it has none."""
    if hasattr(batches, "_shutdown_workers"):
        batches._shutdown_workers()


def default_store() -> Store:
    """What the processes of a distributed job share."""
    store: Store = torch.distributed.distributed_c10d._get_default_store()
    return store


def tcp_store(*arguments: Any, **options: Any) -> TCPStore:
    """A store that processes on other machines can reach; see `torch.distributed.TCPStore`."""
    store: TCPStore = torch.distributed.TCPStore(*arguments, **options)  # type: ignore[attr-defined]  # it is there
    return store


def within(store: TCPStore, prefix: str) -> Store:
    """The keys of a store that begin with a prefix, as a store of their own."""
    inside: Store = torch.distributed.PrefixStore(prefix, store)  # type: ignore[attr-defined]  # it is there
    return inside


def begin_fake_world(size: int) -> None:
    """Be the first of so many processes, none of which is there: what they are to send is made up."""
    from torch.testing._internal.distributed.fake_pg import FakeStore

    torch.distributed.init_process_group("fake", store=FakeStore(), rank=0, world_size=size)


def metadata_of(state_dict: dict[Any, Any]) -> Any:
    """Versions of modules that `Module.state_dict` keeps beside the tensors; None where there are none."""
    return getattr(state_dict, "_metadata", None)


def put_metadata(state_dict: dict[Any, Any], metadata: Any) -> None:
    """Keep versions of modules beside the tensors, as `Module.state_dict` does."""
    state_dict._metadata = metadata  # type: ignore[attr-defined]  # an attribute of an OrderedDict


def multiplies_bfloat16() -> bool:
    """Whether this processor has instructions for products of bfloat16."""
    return bool(torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported())
