"""Two processes that save one checkpoint in shards after the other until they are killed."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import torch
from torch import distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor

from assay_cluster import shard_writer
from assay_cluster.shard_writer import ShardWriter

SHAPE = (512, 257)


def main() -> None:
    rank = 1 if os.fork() == 0 else 0
    os.close(os.open(f"pid{rank}-{os.getpid()}", os.O_CREAT))
    vars(shard_writer)["_FILE_BYTES"] = 1 << 16  # several files each
    first = int(sys.argv[1])
    store = dist.FileStore(f"store-{first}", 2)  # type: ignore[attr-defined]  # it is there
    dist.init_process_group("gloo", store=store, rank=rank, world_size=2)
    try:
        save(rank, first)
    except BaseException:
        os._exit(1)  # the other one was killed
    os.kill(os.getpid(), signal.SIGKILL)


def save(rank: int, first: int) -> None:
    mesh, folder = init_device_mesh("cpu", (2,)), Path("run/checkpoints")
    group = dist.new_group(backend="gloo")
    writer = ShardWriter(group)  # type: ignore[arg-type]  # every process is in it
    for step in range(first, first + 10_000):
        weight = distribute_tensor(torch.full(SHAPE, float(step)), mesh, [Shard(0)])
        progress = {"epoch_loop.batch_progress": {"total": {"completed": step}}}
        checkpoint = {"global_step": step, "state_dict": {"weight": weight}, "loops": {"fit_loop": progress}}
        writer.save(checkpoint, folder / "last.ckpt")
        if step % 3 == 0:
            writer.save(checkpoint, folder / "best.ckpt")
        if step % 5 == 0:
            writer.save(checkpoint, folder / "more.ckpt")
            writer.remove(folder / "more.ckpt")
        if step % 4 == 0:
            writer.wait()
            if rank == 0:
                Path("durable.tmp").write_text(str(step))
                Path("durable.tmp").replace("durable")
