"""What the trainer options of a job ask for: devices, processes, and whether anything ends the run."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from omegaconf import DictConfig

from assay.config.serialize import value_of
from assay.config.unread_keys import SHARDED
from assay.errors import AssayError

WORLD_SIZES = (
    *("WORLD_SIZE", "SLURM_STEP_NUM_TASKS", "SLURM_NTASKS", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE"),
    "JSM_NAMESPACE_SIZE",
)
"""How torchrun, srun, mpirun and jsrun tell a process how many of it there are."""
RUN_ID = "assay.run.ranks"
"""What `TORCHELASTIC_RUN_ID` is in the ranks that assay starts."""
_DISTRIBUTED = ("ddp", "deepspeed")


def requested_devices(trainer: Mapping[str, Any]) -> int | list[int] | None:
    """What `trainer.devices` says, as Lightning reads it.

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
    if isinstance(devices, str):
        devices = devices.split(",")
    return [int(part) for part in devices if str(part).strip()]


def num_devices(trainer: Mapping[str, Any], available: int) -> int:
    """How many devices `trainer.devices` asks for."""
    devices = requested_devices(trainer)
    if isinstance(devices, list):
        return max(1, len(devices))
    if devices is None:
        devices = available
    return max(1, devices)


def num_processes(trainer: Mapping[str, Any], available: int) -> int:
    """Processes that train together, one per device."""
    if is_distributed(trainer):
        return num_devices(trainer, available)
    return 1


def is_distributed(trainer: Mapping[str, Any]) -> bool:
    """Whether the strategy is one of several processes."""
    return is_sharded(trainer) or str(trainer.get("strategy", "auto")).startswith(_DISTRIBUTED)


def is_sharded(trainer: Mapping[str, Any]) -> bool:
    """Whether each device has a shard of the model."""
    strategy = trainer.get("strategy")
    return isinstance(strategy, Mapping | DictConfig) and strategy.get("_target_") == SHARDED


def num_local_processes(config: DictConfig) -> int:
    """How many processes this job needs on this machine; 1 where it is a rank already."""
    if is_rank():
        return 1
    import torch

    on_cpu = config.trainer.get("accelerator") == "cpu"
    if on_cpu:
        available = 1
    else:
        available = torch.cuda.device_count()
    return num_processes(config.trainer, available)


def world_size(config: DictConfig) -> int:
    """Processes of the whole job, over all its machines."""
    if is_rank():
        return int(os.environ["WORLD_SIZE"])
    return num_local_processes(config) * int(config.trainer.get("num_nodes") or 1)


def is_rank() -> bool:
    """Whether assay has started this process as one of a job."""
    return os.environ.get("TORCHELASTIC_RUN_ID") == RUN_ID


def refuse_foreign_ranks() -> None:
    """Refuse to run as one of several processes of another launcher, each of which would do the whole job."""
    if is_rank():
        return
    in_step = "SLURM_STEP_ID" in os.environ  # a shell of salloc has the number of tasks, too
    for name in WORLD_SIZES:
        if name.startswith("SLURM_") and not in_step:
            continue
        if name == "SLURM_NTASKS" and "SLURM_STEP_NUM_TASKS" in os.environ:
            continue
        if (size := os.environ.get(name, "")).isdecimal() and int(size) > 1:
            raise AssayError(
                f"{name}={size}: this is one of {size} processes of another launcher, each of which would "
                "run the whole command",
                hint="start assay once (srun --ntasks=1); for one job on several nodes, `torchrun … -m assay "
                "train …` or `srun assay train …`",
            )


def is_unbounded(values: Mapping[str, Any]) -> bool:
    """Whether neither a number of epochs nor of steps ends a run."""
    epochs = values.get("max_epochs")
    steps = values.get("max_steps", -1)
    if steps is not None and steps != -1:
        return False
    return epochs == -1 or (epochs is None and values.get("max_time") is not None)


def may_end_early(config: DictConfig) -> bool:
    """Whether time or a callback may end a run before its last epoch."""
    return value_of(config, "trainer.max_time") is not None or is_stopped(config)


def is_stopped(config: DictConfig) -> bool:
    """Whether a callback may end the run: early stopping, a timer, or a custom one."""
    nodes = (config.get("callbacks") or {}).values()
    targets = [str(node.get("_target_")) for node in nodes if isinstance(node, DictConfig)]
    ours = ("assay.", "lightning.")
    return any(
        target.endswith(("EarlyStopping", "Timer")) or not target.startswith(ours)
        for target in targets
    )
