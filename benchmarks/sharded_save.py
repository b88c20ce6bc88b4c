"""How long a sharded save holds training up, and how long it takes.

    uv run python benchmarks/sharded_save.py --megabytes 1024 --ranks 2

Each rank holds a share of layers of 4 MB, and multiplies matrices all the while, as a step does. `wait` is
what training waits for a save: the copy. `save` is until it is on disk; `slower` is how much longer a product
takes while a save is under way.
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from torch import distributed, multiprocessing
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor

from assay.record.provenance import cpu_model
from assay_cluster.shard_writer import ShardWriter

ROUNDS = 5


def product(matrix: torch.Tensor) -> float:
    """Seconds of a product that takes some ten milliseconds."""
    start = time.perf_counter()
    torch.mm(matrix, matrix)
    return time.perf_counter() - start


def run_rank(rank: int, ranks: int, megabytes: int, folder: str) -> None:
    """Save several times; the first rank prints."""
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    torch.set_num_threads(1)
    distributed.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=ranks)
    mesh, group = init_device_mesh("cpu", (ranks,)), distributed.new_group(backend="gloo")
    writer = ShardWriter(group)  # type: ignore[arg-type]  # every process is in it
    layers = [
        distribute_tensor(torch.randn(1024, 1024), mesh, [Shard(0)]) for _ in range(max(1, megabytes // 4))
    ]
    state: dict[str, Any] = {"state_dict": {f"layers.{at}.weight": one for at, one in enumerate(layers)}}
    matrix = torch.randn(640, 640)
    alone = statistics.median(product(matrix) for _ in range(30))
    waits, saves, slowed = [], [], []
    for step in range(ROUNDS):
        writer.wait()
        distributed.barrier()
        start = time.perf_counter()
        writer.save({**state, "global_step": step}, Path(folder) / "checkpoints" / "last.ckpt")
        waits.append(time.perf_counter() - start)
        while writer.is_saving:
            slowed.append(product(matrix))
        writer.wait()
        saves.append(time.perf_counter() - start)
    if rank == 0:
        print(
            f"{ranks} ranks, {megabytes} MB in all: wait {statistics.median(waits):.2f} s "
            f"({min(waits):.2f} to {max(waits):.2f}), save {statistics.median(saves):.2f} s "
            f"({min(saves):.2f} to {max(saves):.2f}), slower by {statistics.median(slowed) / alone - 1:.0%}"
        )
    distributed.destroy_process_group()


def main() -> None:
    """Start the ranks."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--megabytes", type=int, default=1024)
    parser.add_argument("--ranks", type=int, default=2)
    chosen = parser.parse_args()
    print(f"torch {torch.__version__}, {cpu_model()}, {os.cpu_count()} cores, {platform.system()}")
    with tempfile.TemporaryDirectory() as folder:
        arguments = (chosen.ranks, chosen.megabytes, folder)
        multiprocessing.spawn(run_rank, arguments, nprocs=chosen.ranks)  # type: ignore[no-untyped-call, attr-defined]  # torch leaves it untyped


if __name__ == "__main__":
    main()
