"""A training step with loss and accuracy tracked: assay against a loop written by hand.

    uv run python benchmarks/train_step.py

Both sides train the same model on the same tensors in memory, shuffle each epoch, and track its mean loss and
accuracy. Pairs are interleaved; the median of the ratios counts, and the hand-written loop against itself
tells how much of it is noise.
"""

from __future__ import annotations

import argparse
import platform
import statistics
import tempfile
import time
from typing import TYPE_CHECKING

import lightning
import torch
from torch.nn import functional as F

from assay.build.assembly import Assembly, assemble
from assay.build.library_warnings import quiet
from assay.compose.compose import compose, job_config
from assay.record.provenance import cpu_model
from assay.report.info import auto_choice

if TYPE_CHECKING:
    from assay.data.data_module import DataModule

NO_CALLBACKS = tuple(
    f"callbacks.{name}=null"
    for name in ("checkpoint", "last_checkpoint", "lr_monitor", "non_finite", "progress_bar")
)
WARM_UP = 2


def job(model: str, epochs: int, folder: str) -> Assembly:
    """The assay side, ready to fit."""
    overrides = [
        "data=synthetic",
        "data.source.num_samples=10000",
        "data.source.input_shape=[1,8,8]",
        f"model={model}",
        "scheduler=none",
        *NO_CALLBACKS,
        f"trainer.max_epochs={epochs}",
        "trainer.limit_val_batches=0",
        f"hydra.run.dir={folder}",
    ]
    return assemble(job_config(compose(overrides)))


def by_assay(model: str, epochs: int) -> float:
    """Seconds a step."""
    with tempfile.TemporaryDirectory() as folder, quiet():
        assembly = job(model, epochs, folder)
        start = time.perf_counter()
        assembly.trainer.fit(assembly.module, datamodule=assembly.datamodule)
        return (time.perf_counter() - start) / assembly.trainer.global_step


def by_hand(model: str, epochs: int) -> float:
    """Seconds a step."""
    with tempfile.TemporaryDirectory() as folder, quiet():
        assembly = job(model, epochs, folder)
    data: DataModule = assembly.datamodule  # type: ignore[assignment]  # the config says so
    loader = data.train_dataloader()
    batches = [data.on_after_batch_transfer(batch, 0) for batch in loader]
    inputs, targets = (torch.cat(column) for column in zip(*batches, strict=True))
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    inputs, targets = inputs.to(device), targets.to(device)
    network = assembly.module.model.to(device).train()  # type: ignore[union-attr]  # a module
    optimizer = torch.optim.AdamW(network.parameters(), lr=0.001)
    size, steps = data.batch_size, 0
    start = time.perf_counter()
    for _ in range(epochs):
        order = torch.randperm(len(targets)).to(device)
        total = torch.zeros((), device=device)
        correct = torch.zeros((), dtype=torch.long, device=device)
        for rows in order.split(size):  # type: ignore[no-untyped-call]  # torch left it untyped
            batch, wanted = inputs[rows], targets[rows]
            outputs = network(batch)
            loss = F.cross_entropy(outputs, wanted)
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]  # as above
            optimizer.step()
            total += loss.detach() * len(rows)
            correct += (outputs.detach().argmax(1) == wanted).sum()
            steps += 1
        float(total), int(correct)
    return (time.perf_counter() - start) / steps


def main() -> None:
    """Print both sides, the ratio, its spread, and what it ran on."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="small_cnn")
    parser.add_argument("--pairs", type=int, default=7)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    ours, hand, ratios, noise = [], [], [], []
    for pair in range(WARM_UP + options.pairs):
        a = by_hand(options.model, options.epochs)
        b = by_assay(options.model, options.epochs)
        c = by_hand(options.model, options.epochs)
        if pair >= WARM_UP:
            ours.append(b)
            hand.append(a)
            ratios.append(b / ((a + c) / 2))
            noise.append(a / c)
    print(f"{cpu_model()}, {auto_choice()['chooses']}, python {platform.python_version()}, ", end="")
    print(f"torch {torch.__version__}, lightning {lightning.__version__}, {options.threads} thread(s)")
    print(f"model={options.model}, {options.pairs} interleaved pairs of {options.epochs} epochs")
    print(f"  by hand  {1e6 * statistics.median(hand):8.0f} µs a step")
    print(f"  assay    {1e6 * statistics.median(ours):8.0f} µs a step")
    print(f"  ratio    {statistics.median(ratios):8.3f}  ({min(ratios):.3f} to {max(ratios):.3f})")
    print(f"  hand/hand{statistics.median(noise):8.3f}  ({min(noise):.3f} to {max(noise):.3f})")


if __name__ == "__main__":
    main()
