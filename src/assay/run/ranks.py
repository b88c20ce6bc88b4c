"""The processes of a distributed job, started from the job's config file."""

from __future__ import annotations

import functools
import os
import socket
import sys
from typing import TYPE_CHECKING

import psutil
import torch

from assay.build.trainer_options import RUN_ID
from assay.process import run_children
from assay.torch_internals import tcp_store

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


def launch(run_dir: Path, num_processes: int, trusted_packages: Sequence[str] = ()) -> str:
    """Run a job on several processes and wait for them; when one dies, the others are ended."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = int(listener.getsockname()[1])
        # The store closes what it listens on, when it goes.
        store = tcp_store(
            "127.0.0.1",
            port,
            is_master=True,
            wait_for_workers=False,
            master_listen_fd=os.dup(listener.fileno()),
        )
    # -P: else a file torch.py in the current directory would be taken for torch.
    command = [sys.executable, "-P", "-m", "assay.run.child_process", "rank", str(run_dir), *trusted_packages]
    environments = [_environment(rank, num_processes, port) for rank in range(num_processes)]
    codes, stopped = run_children((command, {**os.environ, **one}) for one in environments)
    del store
    return stopped or ("failed" if any(codes) else "finished")


def _environment(rank: int, num_processes: int, port: int) -> dict[str, str]:
    """What tells a process that it is a rank, in the words of torch's own launcher."""
    # The cores are shared evenly.
    found = {"OMP_NUM_THREADS": str(max(1, torch.get_num_threads() // num_processes))}
    found |= dict.fromkeys(("RANK", "LOCAL_RANK"), str(rank))
    found |= dict.fromkeys(("WORLD_SIZE", "LOCAL_WORLD_SIZE"), str(num_processes))
    found |= {"GROUP_RANK": "0", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    # By these Lightning and torch know that the ranks are started already, and the store is there.
    found |= {"TORCHELASTIC_RUN_ID": RUN_ID, "TORCHELASTIC_USE_AGENT_STORE": "True"}
    found["TORCH_NCCL_ASYNC_ERROR_HANDLING"] = os.environ.get("TORCH_NCCL_ASYNC_ERROR_HANDLING", "1")
    for name in ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"):
        found[name] = os.environ.get(name) or _loopback()
    return {name: value for name, value in found.items() if value}


@functools.cache
def _loopback() -> str:
    """Name of the network interface of this machine that no other one reaches."""
    interfaces = psutil.net_if_addrs().items()
    return next((name for name, every in interfaces if any(one.address == "127.0.0.1" for one in every)), "")
