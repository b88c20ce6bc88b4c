"""Who this process is among those of one job, as their launcher says: torchrun, srun, or assay itself."""

from __future__ import annotations

import json
import os
import re
import socket
import zlib
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, final

import psutil

from assay.assemble.trainer_options import RUN_ID, WORLD_SIZES
from assay.errors import AssayError, ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

GANG = "ASSAY_GANG"
"""Environment variable by which a launcher of assay's tells a job's process which node of a gang it is."""
QUIET = ("TORCH_CPP_LOG_LEVEL", "ERROR")
"""Else torch writes a screenful about each connection that the end of a process closes."""
_PORTS = range(20_000, 30_000)
"""Where rank 0 listens in a step of Slurm: below those that systems hand out by themselves."""


@final
@dataclass(frozen=True)
class World:
    """The processes that were started together for one job, and which of them this is.

    Attributes:
        rank: Of this process, from 0.
        size: Processes.
        local_rank: Of this process on its node, from 0.
        local_size: Processes on its node.
        node: Of this process, from 0.
        address: Where the store is that they meet at: a host name or an IP address.
        port: Of the store; 0 for any that is free.
        launcher: What has started them.
        job: Tells the store's keys from those of another job.
        serves: Whether rank 0 opens the store; otherwise the launcher has.
    """

    rank: int = 0
    size: int = 1
    local_rank: int = 0
    local_size: int = 1
    node: int = 0
    address: str = "127.0.0.1"
    port: int = 0
    launcher: str = "assay"
    job: str = ""
    serves: bool = True

    @property
    def nodes(self) -> int:
        """Nodes, each with as many processes."""
        return max(1, self.size // self.local_size)

    def to_json(self) -> str:
        """One line for `GANG`."""
        return json.dumps(asdict(self))


def find_world(environment: Mapping[str, str] = os.environ) -> World | None:
    """What a launcher has said to this process; None for one that was started alone.

    Raises:
        AssayError: A launcher asks for what assay does itself, or says too little.
    """
    if text := environment.get(GANG):
        return World(**json.loads(text))
    if environment.get("TORCHELASTIC_RUN_ID", RUN_ID) != RUN_ID:
        world = World(
            rank=int(environment["RANK"]),
            size=int(environment["WORLD_SIZE"]),
            local_rank=int(environment["LOCAL_RANK"]),
            local_size=int(environment["LOCAL_WORLD_SIZE"]),
            node=int(environment["GROUP_RANK"]),
            address=environment["MASTER_ADDR"],
            port=int(environment["MASTER_PORT"]),
            launcher="torchrun",
            serves=environment.get("TORCHELASTIC_USE_AGENT_STORE") != "True",
        )
        if int(environment.get("TORCHELASTIC_MAX_RESTARTS", "0")) and world.size > 1:
            raise AssayError(
                "torchrun would restart failed ranks, and each restart would begin a new run",
                hint="--max-restarts=0; `assay resume` under torchrun resumes a run",
            )
    elif "SLURM_STEP_ID" in environment:
        world = _world_of_srun(environment)
    else:
        return None
    if world.size > 1:
        return world
    return None


def take_world() -> World | None:
    """As `find_world`; its words are taken out of the environment, where other code would act by them."""
    world = find_world()
    if world is not None:
        for name in (*WORLD_SIZES, GANG, "TORCHELASTIC_RUN_ID"):
            os.environ.pop(name, None)
        os.environ.setdefault(*QUIET)
    return world


def _world_of_srun(environment: Mapping[str, str]) -> World:
    def number(*names: str) -> int:
        return next((int(environment[name]) for name in names if name in environment), 1)

    size = number("SLURM_STEP_NUM_TASKS", "SLURM_NTASKS")
    nodes = number("SLURM_STEP_NUM_NODES", "SLURM_NNODES")
    needed = {"SLURM_PROCID": size > 1, "SLURM_NODEID": nodes > 1, "SLURM_LOCALID": size > nodes}
    missing = [
        name for name, is_needed in needed.items() if is_needed and name not in environment
    ]
    if missing:
        message = (
            f"srun has started {size} tasks, but {missing[0]} does not say which of them this is"
        )
        raise AssayError(
            message, hint=f"keep {', '.join(missing)} in the environment, as srun sets them"
        )
    local_rank = int(environment.get("SLURM_LOCALID", "0"))
    # Such as `3,1`: of all nodes, so that every task refuses.
    is_uneven = "," in environment.get("SLURM_STEP_TASKS_PER_NODE", "")
    if size % nodes or is_uneven or local_rank >= size // nodes:
        message = f"srun has started {size} tasks on {nodes} nodes: every node needs the same number of tasks"
        raise AssayError(
            message, hint="srun --ntasks-per-node=…, one task per device or one per node"
        )
    job = ".".join(
        environment.get(f"SLURM_{name}", "0") for name in ("JOB_ID", "RESTART_COUNT", "STEP_ID")
    )
    hosts = environment.get("SLURM_STEP_NODELIST") or environment.get(
        "SLURM_NODELIST", "127.0.0.1"
    )
    # The first of such as `gpu-[07-08,12],cpu3`.
    address = (
        environment.get("MASTER_ADDR")
        or re.sub(r"\[([^],-]+)[^]]*\]", r"\1", hosts).split(",")[0]
    )
    port = environment.get("MASTER_PORT") or _PORTS[zlib.crc32(job.encode()) % len(_PORTS)]
    return World(
        rank=int(environment.get("SLURM_PROCID", "0")),
        size=size,
        local_rank=local_rank,
        local_size=size // nodes,
        node=int(environment.get("SLURM_NODEID", "0")),
        address=address,
        port=int(port),
        launcher="srun",
        job=job,
    )


def interface_towards(address: str) -> str:
    """Name of the network interface by which this machine reaches an address; empty where it is not known."""
    try:
        family, kind, protocol, _, place = socket.getaddrinfo(address, 1, type=socket.SOCK_DGRAM)[
            0
        ]
        with socket.socket(family, kind, protocol) as probe:
            probe.connect(place)  # which sends nothing
            source = probe.getsockname()[0]
    except OSError:
        return ""
    for name, addresses in psutil.net_if_addrs().items():
        if source in [address.address for address in addresses]:
            return name
    return ""


def address_of(interface: str) -> str:
    """This machine's address on a network interface.

    Raises:
        ConfigError: There is no such interface.
    """
    interfaces = psutil.net_if_addrs()
    for address in interfaces.get(interface, ()):
        if address.family == socket.AF_INET:
            return address.address
    raise ConfigError(
        f"{socket.gethostname()} has no network interface {interface!r} with an address",
        key="trainer.interface",
        hint=f"one of {', '.join(sorted(interfaces))}",
    )
