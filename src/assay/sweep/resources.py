"""What a job asks of the machine, as its config says it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

_DISTRIBUTED: Final = ("ddp", "fsdp", "deepspeed")


def num_processes(config: Mapping[str, Any]) -> int:
    """Processes that train together, one a device; 1 where "all devices" are asked for: a job gets its own.

    Args:
        config: A job, as plain data.

    >>> num_processes({"trainer": {"strategy": "ddp", "devices": "0,2"}})
    2
    >>> num_processes({"trainer": {"strategy": "auto", "devices": 1}})
    1
    """
    trainer: Mapping[str, Any] = config.get("trainer") or {}
    if not str(trainer.get("strategy")).startswith(_DISTRIBUTED):
        return 1
    return _num_devices(trainer)


def num_gpus(config: Mapping[str, Any], *, there: bool) -> int:
    """GPUs that a job needs.

    Args:
        config: A job, as plain data.
        there: Whether there are any, which `device=auto` then takes.
    """
    trainer: Mapping[str, Any] = config.get("trainer") or {}
    accelerator = str(trainer.get("accelerator"))
    wanted = accelerator in ("gpu", "cuda") or (accelerator == "auto" and there)
    return _num_devices(trainer) if wanted else 0


def _num_devices(trainer: Mapping[str, Any]) -> int:
    devices = trainer.get("devices")
    if isinstance(devices, list):
        return max(1, len(devices))
    text = str(devices)
    if "," in text:
        return len([part for part in text.split(",") if part.strip()])
    return max(1, int(text)) if text.isdigit() else 1
