"""How much memory is free, here and on a device."""

from __future__ import annotations

from pathlib import Path

import psutil
import torch

from assay.files.control_groups import memory_limits

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
    """Bytes free on an accelerator; 0 where it does not say.

    Args:
        device: Of any type but `cpu`.
    """
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    if device.type == "mps":
        return max(0, torch.mps.recommended_max_memory() - torch.mps.driver_allocated_memory())
    return 0
