"""Does the device have the memory that a step takes?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lightning.pytorch.strategies import DDPStrategy, SingleDeviceStrategy

from assay.check.units import in_bytes
from assay.data.memory import device_memory
from assay.errors import ConfigError

if TYPE_CHECKING:
    import lightning as L

    from assay.check.proof.fake_step import Memory

_FAR, _NEAR = 1.5, 0.8
"""Shares of the memory: an estimate beyond the first cannot be wrong enough, one beyond the second may be."""


def check_capacity(memory: Memory, trainer: L.Trainer, *, whole: bool = True) -> list[str]:
    """Refuse a step far beyond the memory of the device.

    Args:
        memory: Of a step in one process, as it was estimated.
        trainer: Of the job.
        whole: Whether batches are computed whole; else only what does not grow with them is counted.

    Returns:
        A warning where it is near.

    Raises:
        ConfigError: It is far beyond.
    """
    if not isinstance(trainer.strategy, SingleDeviceStrategy | DDPStrategy):
        return []  # sharded, so that each device holds a part of it
    device = trainer.strategy.root_device
    there = device_memory(device)
    processes = trainer.num_devices if device.type == "cpu" else 1  # these share it
    needed = (memory.peak if whole else memory.peak - memory.activations) * processes
    if not there or needed <= _NEAR * there:
        return []
    where = "this machine" if device.type == "cpu" else str(device)
    text = f"a step takes about {in_bytes(needed)}, and {where} has {in_bytes(there)}"
    if needed <= _FAR * there:
        return [f"{text}: it may not fit"]
    if memory.activations > memory.peak / 2:
        hint = "trainer.micro_batch=auto, or a smaller data.batch_size"
        raise ConfigError(text, key="data.batch_size", hint=hint)
    raise ConfigError(
        text, key="model", hint="a smaller model, precision=bf16_true, or device=fsdp on several GPUs"
    )
