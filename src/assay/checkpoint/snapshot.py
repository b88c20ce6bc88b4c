"""A copy of a checkpoint in this machine's memory, so that training can go on while it is written."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Any, final

import torch

if TYPE_CHECKING:
    from collections.abc import Callable

_MAY_DIFFER = 0.1
_WORD = 8


@final
class Snapshot:
    """Copies of the memory behind tensors, each piece once, whatever shares it.

    A save of what another one has just copied (the best and the last checkpoint of one step) shares the
    copies: comparing costs less than copying, and no further memory.

    Args:
        earlier: A snapshot that is still being written; None when there is none.
        release: Called, at most once, before much is copied that the earlier snapshot does not have; it
            should wait until that is written and its memory is free.
    """

    def __init__(self, earlier: Snapshot | None = None, release: Callable[[], None] = lambda: None) -> None:
        self._copies: dict[tuple[str, int, int], torch.UntypedStorage] = {}
        self._earlier = earlier._copies if earlier is not None else {}
        self._release = release
        self._free = _MAY_DIFFER * (0 if earlier is None else earlier.nbytes)

    @property
    def nbytes(self) -> int:
        """Bytes that it holds, with those that it shares."""
        return sum(copy.nbytes() for copy in self._copies.values())

    def copy(self, value: Any) -> Any:
        """The same value with tensors in the CPU's memory, of which nothing changes any more.

        Args:
            value: What `assay.checkpoint.container.plain` returned.
        """
        if isinstance(value, torch.Tensor):
            return self._tensor(value)
        if isinstance(value, OrderedDict):
            copied = OrderedDict((name, self.copy(one)) for name, one in value.items())
            vars(copied).update(vars(value))  # the versions of the modules
            return copied
        if isinstance(value, dict):
            return type(value)({name: self.copy(one) for name, one in value.items()})
        if isinstance(value, list | tuple) and type(value) in (list, tuple):
            return type(value)(self.copy(one) for one in value)
        return value

    def _tensor(self, tensor: torch.Tensor) -> torch.Tensor:
        tensor = tensor.detach()
        device = "meta" if tensor.is_meta else "cpu"
        if tensor.layout != torch.strided or tensor.is_quantized or tensor.is_meta:
            return tensor.to(device, copy=True)
        if tensor.is_conj() or tensor.is_neg():  # has no memory as it reads
            return tensor.resolve_conj().resolve_neg().to(device, copy=True)
        storage = self._storage(tensor.untyped_storage())
        empty = torch.empty(0, dtype=tensor.dtype)
        return empty.set_(storage, tensor.storage_offset(), tensor.shape, tensor.stride())

    def _storage(self, storage: torch.UntypedStorage) -> torch.UntypedStorage:
        key = (str(storage.device), storage.data_ptr(), storage.nbytes())
        if key not in self._copies:
            here = storage.cpu()  # type: ignore[no-untyped-call]  # itself, where it lies there already
            earlier = self._earlier.get(key)
            if earlier is not None and _equal(earlier, here):
                self._copies[key] = earlier
            else:
                self._make_room(storage.nbytes())
                self._copies[key] = storage.clone() if here is storage else here
        return self._copies[key]

    def _make_room(self, size: int) -> None:
        self._free -= size
        if self._earlier and self._free < 0:
            self._earlier = {}
            self._release()


def _equal(one: torch.UntypedStorage, other: torch.UntypedStorage) -> bool:
    """Whether the bytes are the same: as numbers, -0.0 would equal 0.0, and no NaN itself."""
    whole = one.nbytes() // _WORD * _WORD
    a, b = (torch.empty(0, dtype=torch.uint8).set_(storage) for storage in (one, other))
    # As 64-bit words; bytes take eight times as long.
    return torch.equal(a[:whole].view(torch.int64), b[:whole].view(torch.int64)) and torch.equal(
        a[whole:], b[whole:]
    )
