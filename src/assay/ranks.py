"""The processes of a distributed job: started by torch's elastic launcher from the job's config file.

Lightning would start further ranks by replaying the command line, which inside a sweep starts the whole sweep
again, and from a notebook cannot work at all. Here every rank reads `config.yaml` of the run directory, so
where the job came from does not matter.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import uuid
from pathlib import Path
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from omegaconf import DictConfig

_DISTRIBUTED = ("ddp", "fsdp", "deepspeed")


def count(config: DictConfig) -> int:
    """How many processes this job needs on this machine; 1 where it is a rank already.

    Args:
        config: The job.
    """
    trainer = config.trainer
    if "LOCAL_RANK" in os.environ or not str(trainer.strategy).startswith(_DISTRIBUTED):
        return 1
    devices = trainer.devices
    if devices in (-1, "-1", "auto"):
        return max(1, torch.cuda.device_count())
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
    return count(config) * int(config.trainer.get("num_nodes") or 1)


def launch(run_dir: Path, num_processes: int, trusted_packages: Sequence[str] = ()) -> str:
    """Run a job on several processes and wait for them; when one dies, the others are ended.

    Args:
        run_dir: Holds the job's `config.yaml`.
        num_processes: One a device.
        trusted_packages: What the user trusts; a config file cannot say so itself.

    Returns:
        `finished`, `failed`, or the name of the signal that was passed on to them. What the run came to
        stands in the record and the log.
    """
    from torch.distributed.elastic.multiprocessing import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    # torch's launcher gives each rank one thread unless told otherwise; the cores are shared evenly instead.
    threads = max(1, torch.get_num_threads() // num_processes)
    launch_config = LaunchConfig(
        min_nodes=1,
        max_nodes=1,
        nproc_per_node=num_processes,
        run_id=uuid.uuid4().hex,
        rdzv_backend="c10d",
        rdzv_endpoint="localhost:0",
        max_restarts=0,
        monitor_interval=0.1,
        signals_to_handle="SIGTERM,SIGINT,SIGUSR1,SIGHUP,SIGQUIT",
    )
    before = os.environ.get("OMP_NUM_THREADS")
    os.environ["OMP_NUM_THREADS"] = str(threads)
    handlers = {number: signal.getsignal(number) for number in signal.valid_signals()}
    try:
        # -P: else a file torch.py in the current directory would be taken for torch.
        elastic_launch(launch_config, sys.executable)(
            "-P", "-m", "assay.ranks", str(run_dir), *trusted_packages
        )
    except ChildFailedError:
        return "failed"
    except SignalException as stopped:
        return signal.Signals(stopped.sigval).name
    finally:
        if threading.current_thread() is threading.main_thread():  # torch leaves its own behind
            for number, handler in handlers.items():
                if signal.getsignal(number) is not handler:
                    signal.signal(number, handler)
        if before is None:
            del os.environ["OMP_NUM_THREADS"]
        else:
            os.environ["OMP_NUM_THREADS"] = before
    return "finished"


def main() -> None:
    """One rank: run the job of the directory named on the command line; what is trusted comes after it."""
    from assay.run import run_rank

    sys.exit(run_rank(Path(sys.argv[1]), sys.argv[2:]))


if __name__ == "__main__":
    main()
