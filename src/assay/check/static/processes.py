"""Are a job's processes those that assay starts?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lightning.pytorch.accelerators import CPUAccelerator, CUDAAccelerator, MPSAccelerator
from lightning.pytorch.strategies.launchers import _SubprocessScriptLauncher

from assay.build.trainer.num_processes import is_rank, num_local_processes, requested_devices
from assay.errors import ConfigError

if TYPE_CHECKING:
    import lightning as L
    from omegaconf import DictConfig

_KINDS = {CPUAccelerator: "cpu", CUDAAccelerator: "cuda", MPSAccelerator: "mps"}


def check_processes(config: DictConfig, trainer: L.Trainer) -> None:
    """Refuse what Lightning would start processes for by itself.

    It replays the command line, or forks or spawns: in a sweep, in a notebook and beside a run directory that
    is there already, neither can work. `assay.run.ranks` starts the processes of a job.

    Args:
        config: The job.
        trainer: As it is built from it; it has started nothing yet.

    Raises:
        ConfigError: Naming the key, and what to type.
    """
    strategy, devices = trainer.strategy, trainer.num_devices
    name = config.trainer.get("strategy", "auto")
    shown = name if isinstance(name, str) else type(strategy).__name__
    gpus = not isinstance(trainer.accelerator, CPUAccelerator)
    if strategy.launcher is not None and not isinstance(strategy.launcher, _SubprocessScriptLauncher):
        raise ConfigError(
            f"{shown} starts processes by itself, which cannot work from a config; assay starts those of ddp",
            key="trainer.strategy",
            hint="trainer.strategy=auto for one device; "
            + ("device=ddp for all GPUs" if gpus else "device=ddp_cpu for several processes on the CPU"),
        )
    kind = _KINDS.get(type(trainer.accelerator))
    if kind is not None and strategy.root_device.type != kind:
        raise ConfigError(
            f"{shown} computes on {strategy.root_device}, not on {kind}",
            key="trainer.strategy",
            hint="trainer.strategy=auto",
        )
    asked = requested_devices(config.trainer)
    if isinstance(asked, int) and asked != devices:
        raise ConfigError(
            f"{asked} devices were asked for, but {shown} computes on {devices}",
            key="trainer.devices",
            hint=f"trainer.devices={devices}, or trainer.strategy=ddp",
        )
    started = num_local_processes(config)
    if is_rank() or started == devices:
        return
    if started == 1:
        instead = "trainer.strategy=ddp" if gpus else f"device=ddp_cpu trainer.devices={devices}"
        raise ConfigError(
            f"{devices} devices need a strategy that assay starts their processes for; {shown} is none",
            key="trainer.devices",
            hint=f"trainer.devices=1, or {instead}",
        )
    raise ConfigError(
        f"{asked or 'auto'} means {started} processes to assay and {devices} to Lightning",
        key="trainer.devices",
        hint=f"trainer.devices={devices}",
    )
