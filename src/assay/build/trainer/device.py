"""Does this machine have the device and the precision that were asked for?"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from assay.build.trainer.num_processes import requested_devices
from assay.errors import DeviceError

if TYPE_CHECKING:
    from omegaconf import DictConfig


def check_device(trainer: DictConfig) -> None:
    """Refuse early, in one line, what Lightning would refuse late.

    Args:
        trainer: The `trainer` node.

    Raises:
        DeviceError: There is no such device here, not so many, or it cannot compute in this precision.
    """
    # What is left out is what Lightning takes by itself.
    accelerator = trainer.get("accelerator", "auto")
    precision = str(trainer.get("precision"))
    cuda, mps = torch.cuda.device_count(), torch.backends.mps.is_available()
    if accelerator in ("gpu", "cuda") and not cuda and not (accelerator == "gpu" and mps):
        raise DeviceError(
            "device: this machine has no GPU that torch can use",
            hint="device=auto or device=cpu; `assay info` says what is here",
        )
    if accelerator == "mps" and not mps:
        raise DeviceError(
            "device=mps: this machine has no Apple GPU that torch can use", hint="device=auto or device=cpu"
        )
    if accelerator in ("gpu", "cuda") and cuda:
        _check_indices(trainer, cuda)
    on_cpu = accelerator == "cpu" or (accelerator == "auto" and not cuda and not mps)
    if on_cpu and precision in ("16-mixed", "16-true", "16"):
        raise DeviceError(
            "precision=fp16 needs a GPU; this run is on the CPU", hint="precision=bf16, or device=gpu"
        )
    if precision == "64-true" and (accelerator == "mps" or (accelerator == "auto" and mps and not cuda)):
        raise DeviceError(
            "precision=fp64: Apple's GPU has no double precision", hint="device=cpu precision=fp64"
        )


def _check_indices(trainer: DictConfig, available: int) -> None:
    wanted = requested_devices(trainer)
    if isinstance(wanted, int) and wanted > available:
        raise DeviceError(
            f"trainer.devices={wanted}: this machine has {available} GPU(s)",
            hint=f"trainer.devices={available}",
        )
    missing = [index for index in wanted if index >= available] if isinstance(wanted, list) else []
    if missing:
        raise DeviceError(
            f"trainer.devices={wanted}: there is no GPU {missing[0]}; this machine has {available}, "
            "counted from 0",
            hint="trainer.devices=[0]",
        )


def gpu_names() -> list[str]:
    """Of the GPUs of this machine, as torch tells them."""
    return [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())]
