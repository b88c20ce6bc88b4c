"""The ranks of a distributed job on this node, started from the job's config file."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from typing import TYPE_CHECKING

import torch

from assay.build.trainer_options import RUN_ID
from assay.process import run_children
from assay.record.run_record import signal_name
from assay.run.gang import Failure
from assay.run.world import GANG, QUIET, World, interface_towards

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from assay.run.gang import Gang


def launch(
    run_dir: Path, gang: Gang, number: int, trusted_packages: Sequence[str] = (), interface: str = ""
) -> str:
    """Run a job on several processes of this node and wait for them; when one dies, the others are ended."""
    world = gang.world
    # -P: else a file torch.py in the current directory would be taken for torch.
    command = [sys.executable, "-P", "-m", "assay.run.child_process", "rank", str(run_dir), *trusted_packages]
    # The cores are shared evenly.
    threads = max(1, torch.get_num_threads() // number)
    ranks = [
        replace(
            world,
            rank=world.rank * number + local_rank,
            size=world.size * number,
            local_rank=local_rank,
            local_size=number,
            serves=False,
        )
        for local_rank in range(number)
    ]
    environments = [rank_environment(rank, threads, interface) for rank in ranks]

    def report_exit(index: int, code: int) -> None:
        ended = f"was ended by {signal_name(-code)}" if code < 0 else f"ended with exit code {code}"
        who = f"rank {ranks[index].rank} of {ranks[index].size} on {gang.host}"
        gang.fail(Failure(who, f"its process {ended}"))

    codes, stopped = run_children(
        ((command, {**os.environ, **environment}) for environment in environments), report_exit
    )
    return stopped or ("failed" if any(codes) else "finished")


def rank_environment(world: World, threads: int, interface: str) -> Mapping[str, str]:
    """What tells a process that it is a rank, in the words of torch's own launcher."""
    environment = {GANG: world.to_json(), "OMP_NUM_THREADS": str(threads)}
    environment[QUIET[0]] = os.environ.get(*QUIET)
    environment |= {
        "RANK": str(world.rank),
        "LOCAL_RANK": str(world.local_rank),
        "GROUP_RANK": str(world.node),
    }
    environment |= {"WORLD_SIZE": str(world.size), "LOCAL_WORLD_SIZE": str(world.local_size)}
    environment |= {"MASTER_ADDR": world.address, "MASTER_PORT": str(world.port)}
    # By these Lightning and torch know that the ranks are started already, and the store is there.
    environment |= {"TORCHELASTIC_RUN_ID": RUN_ID, "TORCHELASTIC_USE_AGENT_STORE": "True"}
    environment["TORCH_NCCL_ASYNC_ERROR_HANDLING"] = os.environ.get("TORCH_NCCL_ASYNC_ERROR_HANDLING", "1")
    for name in ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"):
        environment[name] = interface or os.environ.get(name) or interface_towards(world.address)
    return {name: value for name, value in environment.items() if value}
