"""Two thousand epochs of a tiny set: whether the last hundred cost what the first hundred did.

    uv run python benchmarks/many_epochs.py

Digits in two batches, a linear model, validation after each epoch, the default callbacks. Of each epoch: the
time that passed, and that of the training thread alone, which a busy machine and a slow disk leave as it is.
The memory is what the process has that is in no file.
"""

from __future__ import annotations

import argparse
import itertools
import platform
import statistics
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, final

import lightning
import torch
from lightning.pytorch.callbacks import Callback
from typing_extensions import override

import assay
from assay.record.provenance import cpu_model

if TYPE_CHECKING:
    import lightning as L

HUNDRED = 100
FILES = ("metrics.csv", "log.txt", "record.json", "checkpoints/last.ckpt")


@final
class Clock(Callback):
    """What an epoch takes, and what there is after each hundred."""

    def __init__(self) -> None:
        self.passed: list[float] = []
        self.worked: list[float] = []
        self.memory: list[int] = []
        self.sizes: list[list[int]] = []

    @override
    def on_train_epoch_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        if trainer.current_epoch % HUNDRED == 0:
            self.memory.append(anonymous())
            run_dir = Path(trainer.default_root_dir)
            paths = [run_dir / name for name in FILES]
            self.sizes.append([path.stat().st_size if path.is_file() else 0 for path in paths])
        self.passed.append(time.perf_counter())
        self.worked.append(time.thread_time())


def anonymous() -> int:
    """KiB of memory that is in no file; Linux alone says it."""
    lines = Path("/proc/self/smaps_rollup").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("Anonymous:"))


def milliseconds(moments: list[float]) -> str:
    """Medians of the first and the last hundred epochs, and their ratio."""
    epochs = [1e3 * (after - before) for before, after in itertools.pairwise(moments)]
    first, last = statistics.median(epochs[:HUNDRED]), statistics.median(epochs[-HUNDRED:])
    return f"{first:8.2f} {last:8.2f} {last / first:8.3f}"


def main() -> None:
    """Print the first and the last hundred epochs, memory and files, and what they ran on."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=2000)
    parser.add_argument("overrides", nargs="*")
    options = parser.parse_args()
    torch.set_num_threads(1)
    clock = Clock()
    with tempfile.TemporaryDirectory() as folder:
        job = ["data=digits", "model=linear", "data.batch_size=1024", f"trainer.max_epochs={options.epochs}"]
        assay.train([*job, f"hydra.run.dir={folder}/run", *options.overrides], callbacks=[clock])
    print(f"{cpu_model()}, python {platform.python_version()}, ", end="")
    print(f"torch {torch.__version__}, lightning {lightning.__version__}, 1 thread")
    print(f"{options.epochs} epochs; medians of the first {HUNDRED}, of the last {HUNDRED}, their ratio")
    print(f"  ms an epoch               {milliseconds(clock.passed)}")
    print(f"  of them, training thread  {milliseconds(clock.worked)}")
    print(f"after {HUNDRED} epochs, after {(len(clock.memory) - 1) * HUNDRED}, between them an epoch")
    epochs = (len(clock.memory) - 2) * HUNDRED
    rows = {"memory": [1024 * size for size in clock.memory]}
    rows |= {name: [sizes[column] for sizes in clock.sizes] for column, name in enumerate(FILES)}
    for name, sizes in rows.items():
        print(f"  {name:22s} {sizes[1]:12,d} {sizes[-1]:12,d} {(sizes[-1] - sizes[1]) / epochs:8.1f} bytes")


if __name__ == "__main__":
    main()
