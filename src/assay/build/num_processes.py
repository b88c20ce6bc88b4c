"""How many processes a job needs."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

import torch

if TYPE_CHECKING:
    from omegaconf import DictConfig

_DISTRIBUTED: Final = ("ddp", "fsdp", "deepspeed")


def num_local_processes(config: DictConfig) -> int:
    """How many processes this job needs on this machine; 1 where it is a rank already.

    Args:
        config: The job.
    """
    trainer = config.trainer
    if "LOCAL_RANK" in os.environ or not str(trainer.get("strategy", "auto")).startswith(_DISTRIBUTED):
        return 1
    devices = trainer.get("devices", "auto")
    if devices in (-1, "-1", "auto"):
        return max(1, torch.cuda.device_count()) if trainer.get("accelerator") != "cpu" else 1
    if isinstance(devices, str):  # as Lightning reads it: "2" is a number of devices, "0,2" are two of them
        devices = [part for part in devices.split(",") if part.strip()] if "," in devices else int(devices)
    return devices if isinstance(devices, int) else len(devices)


def world_size(config: DictConfig) -> int:
    """Processes of the whole job, over all its machines.

    Args:
        config: The job.
    """
    if "WORLD_SIZE" in os.environ:
        return int(os.environ["WORLD_SIZE"])
    return num_local_processes(config) * int(config.trainer.get("num_nodes") or 1)
