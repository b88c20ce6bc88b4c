"""Where a data set in memory lies while it is trained on."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

import torch

from assay.data.memory import free_device_memory

if TYPE_CHECKING:
    from torch import Tensor

    from assay.data.samples import Samples


@final
class Placement:
    """Gathers batches of a data set where they are needed.

    The data set moves to the device once, for the whole run and for all parts that share it, if it takes no
    more than half of the memory free there; otherwise each batch is gathered here and moved by itself.

    Args:
        samples: The data set.
        pin_memory: Gather into page-locked memory on the way to a CUDA device.
    """

    def __init__(self, samples: Samples, pin_memory: bool = False) -> None:
        self._samples, self._pin_memory = samples, pin_memory
        self._inputs, self._targets = samples.inputs, samples.targets
        self._device = torch.device("cpu")

    def take(self, rows: Tensor, device: torch.device) -> tuple[Tensor, Tensor]:
        """One batch.

        Args:
            rows: int64 `[B]`, on the CPU.
            device: Where the batch should be.

        Returns:
            Inputs `[B, ...]` in the dtype they are stored in, and targets.
        """
        if device != self._device:
            self._move(device)
        targets = self._targets.index_select(0, rows.to(device, non_blocking=True))
        if self._inputs.device == device:
            return self._inputs.index_select(0, rows.to(device, non_blocking=True)), targets
        shape = (len(rows), *self._inputs.shape[1:])
        pinned = self._pin_memory and device.type == "cuda"
        # A fresh buffer each time: torch's host allocator reuses it only once the copy has ended.
        buffer = torch.empty(shape, dtype=self._inputs.dtype, pin_memory=pinned)
        torch.index_select(self._inputs, 0, rows, out=buffer)
        return buffer.to(device, non_blocking=True), targets

    def _move(self, device: torch.device) -> None:
        inputs, targets = self._samples.inputs, self._samples.targets
        if device.type == "cpu" or inputs.nbytes + targets.nbytes <= free_device_memory(device) // 2:
            inputs = inputs.to(device)
        self._inputs, self._targets, self._device = inputs, targets.to(device), device
