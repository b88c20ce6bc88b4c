"""How much memory is free, and where a data set in memory lies while it is trained on."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, final

import psutil
import torch
from torch import Tensor

from assay.process import memory_limits

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from assay.data.core.samples import Samples
    from assay.data.core.types import Pair


_CGROUP = Path("/sys/fs/cgroup")


def free_memory() -> int:
    """Bytes this process can still take: what the machine has free, or a container's limit leaves."""
    limits = (max(0, limit - used) for limit, used in memory_limits(_CGROUP))
    return min([psutil.virtual_memory().available, *limits])


def device_memory(device: torch.device) -> int:
    """Bytes of a device in all; of the CPU those of the machine, or a container's limit. 0: not known."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[1]
    if device.type == "mps":
        return torch.mps.recommended_max_memory()
    if device.type != "cpu":
        return 0
    return min([psutil.virtual_memory().total, *(limit for limit, _ in memory_limits(_CGROUP))])


def free_device_memory(device: torch.device) -> int:
    """Bytes free on an accelerator; 0 where it does not say."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    if device.type == "mps":
        return max(0, torch.mps.recommended_max_memory() - torch.mps.driver_allocated_memory())
    return 0


BLOCK_ELEMENTS = 1 << 22
_MULTIPLE = 8
"""Of which padded lengths are, so that kernels meet few shapes."""


class Prepared(NamedTuple):
    """A batch that a model can be given as it is."""

    inputs: Tensor
    targets: Tensor


@final
class Placement:
    """Gathers batches of a data set where they are needed.

    The data set moves to the device once, for the whole run and for all subsets that share it, if it takes no
    more than half of the memory free there; otherwise each batch is gathered here and moved by itself.
    """

    def __init__(
        self,
        samples: Samples,
        pin_memory: bool = False,
        prepare: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]] | None = None,
        processes: int = 1,
    ) -> None:
        self._samples = samples
        self._pin_memory = pin_memory
        self._inputs = samples.inputs
        self._targets = samples.targets
        self._device = torch.device("cpu")
        self._prepare = prepare
        self._processes = processes
        self._is_prepared = False
        self._num_taken = 0

    def batches(self, rows: Sequence[Tensor], device: torch.device) -> Iterator[Pair | Prepared]:
        """Batches of an epoch, or of the rest of one."""
        if not rows:
            return
        if device != self._device:
            self._move(device)
        if 2 * self._num_taken >= len(self._samples):
            self._prepare_all()
        inputs = self._inputs
        targets = self._targets
        # At once: moving the rows of each batch by itself costs as much as gathering it.
        there: Sequence[Tensor] = rows
        if device.type != "cpu":
            together = torch.cat(list(rows)).to(device)
            there = together.split([*map(len, rows)])  # type: ignore[no-untyped-call]  # torch leaves it untyped
        is_there = inputs.device == device
        is_prepared = self._is_prepared
        lengths = self._samples.lengths
        for here, chosen in zip(rows, there, strict=True):
            cut = inputs
            if lengths is not None:
                cut = inputs[:, : padded_length(int(lengths[here].max()))]
            if is_there:
                taken = take_rows(cut, chosen)
            else:
                taken = self._gather_on_cpu(cut, here, device)
            self._num_taken += len(here)
            pair = taken, targets.index_select(0, chosen)
            yield Prepared(*pair) if is_prepared else pair

    def _gather_on_cpu(self, inputs: Tensor, rows: Tensor, device: torch.device) -> Tensor:
        shape = (len(rows), *inputs.shape[1:])
        pinned = self._pin_memory and device.type == "cuda"
        # A fresh buffer each time: torch's host allocator reuses it only once the copy has ended.
        buffer = torch.empty(shape, dtype=inputs.dtype, pin_memory=pinned)
        torch.index_select(inputs, 0, rows, out=buffer)
        return buffer.to(device, non_blocking=True)

    def _move(self, device: torch.device) -> None:
        inputs = self._samples.inputs
        targets = self._samples.targets
        if (
            device.type == "cpu"
            or inputs.nbytes + targets.nbytes <= free_device_memory(device) // 2
        ):
            inputs = inputs.to(device)
        self._inputs = inputs
        self._targets = targets.to(device)
        self._device = device
        self._is_prepared = False

    def _prepare_all(self) -> None:
        """Do to all samples what is done to each batch, if there is room for the result."""
        prepare = self._prepare
        device = self._device
        if prepare is None or self._is_prepared or self._inputs.device != device:
            return
        samples = self._inputs, self._targets
        first = prepare(samples[0][:1], samples[1][:1])
        if samples[0].dtype != first[0].dtype and not first[0].is_floating_point():
            return  # token ids are kept in few bytes, and widening those of a batch costs next to nothing
        changed = [place for place in (0, 1) if not _is_view(first[place], samples[place])]
        size = sum(first[place][0].nbytes * len(samples[place]) for place in changed)
        if device.type == "cpu":
            free = free_memory()
        else:
            free = free_device_memory(device)
        if size > free // 4 // self._processes:
            return
        ready = list(samples)
        for place in changed:
            ready[place] = first[place].new_empty((len(samples[place]), *first[place].shape[1:]))
        # In blocks: a value does not depend on what lies beside it, and the whole would take memory twice.
        length = max(1, BLOCK_ELEMENTS // max(1, samples[0][0].numel()))
        for start in range(0, len(self._samples), length):
            block = slice(start, start + length)
            prepared = prepare(samples[0][block], samples[1][block])
            for place in changed:
                ready[place][block] = prepared[place]
        self._inputs, self._targets = ready
        self._is_prepared = True


_LARGE_ROW = 1 << 15
"""Elements, from which `index_select` divides each row between threads (torch 2.11)."""


def take_rows(values: Tensor, rows: Tensor) -> Tensor:
    """Some rows of a tensor: on a CPU large ones by one thread, as torch's wait for each other at each."""
    is_plain = values.device.type == "cpu" and values.dtype != torch.bfloat16
    if is_plain and values.is_contiguous() and values[:1].numel() >= _LARGE_ROW:
        return torch.from_numpy(values.numpy().take(rows.numpy(), axis=0))
    return values.index_select(0, rows)


def padded_length(longest: int) -> int:
    """How long the samples of a batch are, whatever is padded.

    >>> [padded_length(length) for length in (0, 1, 8, 9)]
    [8, 8, 8, 16]
    """
    return max(1, -(-longest // _MULTIPLE)) * _MULTIPLE


def _is_view(new: Tensor, old: Tensor) -> bool:
    """Whether nothing was done to the first of some samples."""
    return (
        new.data_ptr() == old.data_ptr()
        and new.dtype == old.dtype
        and new.shape[1:] == old.shape[1:]
    )
