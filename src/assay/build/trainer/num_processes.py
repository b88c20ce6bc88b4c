"""How many devices and processes a job asks for."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

    from omegaconf import DictConfig

_DISTRIBUTED: Final = ("ddp", "fsdp", "deepspeed")


def requested_devices(trainer: Mapping[str, Any]) -> int | list[int] | None:
    """What `trainer.devices` says, as Lightning reads it.

    Args:
        trainer: The `trainer` node.

    Returns:
        A number of devices, the indices of some, or None for all that there are.

    >>> [requested_devices({"devices": given}) for given in ("2", "0,2", "2,", -1, "auto", [1])]
    [2, [0, 2], [2], None, None, [1]]
    """
    devices = trainer.get("devices", "auto")
    if devices in (None, "auto", -1, "-1"):
        return None
    if isinstance(devices, str) and "," not in devices:
        return int(devices)
    if isinstance(devices, int):
        return devices
    parts = devices.split(",") if isinstance(devices, str) else map(str, devices)
    return [int(part) for part in parts if part.strip()]


def num_devices(trainer: Mapping[str, Any], available: int) -> int:
    """How many devices `trainer.devices` asks for.

    Args:
        trainer: The `trainer` node.
        available: The answer where all are asked for.
    """
    devices = requested_devices(trainer)
    return max(1, available if devices is None else devices if isinstance(devices, int) else len(devices))


def num_processes(trainer: Mapping[str, Any], available: int) -> int:
    """Processes that train together, one per device.

    Args:
        trainer: The `trainer` node.
        available: As for `num_devices`.
    """
    distributed = str(trainer.get("strategy", "auto")).startswith(_DISTRIBUTED)
    return num_devices(trainer, available) if distributed else 1


def num_local_processes(config: DictConfig) -> int:
    """How many processes this job needs on this machine; 1 where it is a rank already."""
    if "LOCAL_RANK" in os.environ:
        return 1
    import torch

    on_cpu = config.trainer.get("accelerator") == "cpu"
    return num_processes(config.trainer, 1 if on_cpu else torch.cuda.device_count())


def world_size(config: DictConfig) -> int:
    """Processes of the whole job, over all its machines."""
    if "WORLD_SIZE" in os.environ:
        return int(os.environ["WORLD_SIZE"])
    return num_local_processes(config) * int(config.trainer.get("num_nodes") or 1)
