"""What a job asks of the machine, as its config says it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from assay.build.num_processes import num_devices

if TYPE_CHECKING:
    from collections.abc import Mapping


def num_gpus(trainer: Mapping[str, Any], *, there: bool) -> int:
    """GPUs that a job needs; one where "all devices" are asked for: a job gets its own.

    Args:
        trainer: The job's `trainer` node.
        there: Whether there are any, which `device=auto` then takes.
    """
    accelerator = str(trainer.get("accelerator"))
    wanted = accelerator in ("gpu", "cuda") or (accelerator == "auto" and there)
    return num_devices(trainer, 1) if wanted else 0
