"""How much memory tensors take while they live, operation by operation."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any, final

import torch

from assay.torch_internals import TorchDispatchMode, tree_iter

if TYPE_CHECKING:
    from collections.abc import Iterable


@final
class LiveMemory(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch leaves it untyped
    """Counts the bytes of the storages that are alive, and the most there were at once.

    Fake tensors count as what they stand for. What an operation takes within itself is not seen.

    Args:
        already: Tensors that are there from the start.

    Attributes:
        live: Bytes now.
        peak: Most bytes so far.
    """

    def __init__(self, already: Iterable[torch.Tensor] = ()) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # torch leaves it untyped
        self.live = self.peak = 0
        self._sizes: dict[int, int] = {}
        for tensor in already:
            self._count(tensor)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run the operation and count what it made."""
        del types
        result = func(*args, **(kwargs or {}))
        for value in tree_iter(result):
            if isinstance(value, torch.Tensor):
                for part in dense_parts(value):
                    self._count(part)
        return result

    def _count(self, tensor: torch.Tensor) -> None:
        # torch gives a storage one Python object for as long as any tensor uses it.
        storage = tensor.untyped_storage()
        name = id(storage)
        if name not in self._sizes:
            self._sizes[name] = storage.nbytes()
            weakref.finalize(storage, self._drop, name)
            self.live += self._sizes[name]
            self.peak = max(self.peak, self.live)

    def _drop(self, name: int) -> None:
        self.live -= self._sizes.pop(name)


def dense_parts(tensor: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """The tensors that have the memory: of a sparse one its indices and values, else itself."""
    return (tensor._indices(), tensor._values()) if tensor.is_sparse else (tensor,)
