"""The side of `train_step.py` and `evaluate.py` that is written by hand: torch, and the model's class."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import torch
from benchmarks.interleaved import answer
from torch import nn
from torch.nn import functional as F

from assay.model.mlp import MLP
from assay.model.small_cnn import SmallCNN
from assay.model.torchvision import Torchvision

if TYPE_CHECKING:
    from collections.abc import Callable


def model_of(job: dict[str, Any]) -> nn.Module:
    """The model of a job, with its weights, where its samples are."""
    inputs = job["inputs"]
    model = built(job["model"], list(inputs.shape[1:]), job["num_classes"])
    model.load_state_dict(job["weights"])
    return model.to(inputs.device)


def built(name: str, shape: list[int], num_classes: int) -> nn.Module:
    """The model of an option of `conf/model`."""
    if name == "linear":
        return nn.Sequential(nn.Flatten(), nn.Linear(torch.Size(shape).numel(), num_classes))
    if name == "resnet18":
        return Torchvision(name, shape, num_classes)
    return MLP(shape, num_classes) if name == "mlp" else SmallCNN(shape, num_classes)


def train(job: dict[str, Any], epochs: int) -> float:
    """Seconds a step of a loop that shuffles, and tracks mean loss and accuracy."""
    inputs, targets, size = job["inputs"], job["targets"], job["batch_size"]
    clock: Callable[[], float] = getattr(time, job["clock"])
    model = model_of(job).train()
    optimizer = getattr(torch.optim, job["optimizer"])(model.parameters(), **job["options"])
    steps = 0
    seconds = 0.0
    for _ in range(epochs):
        start = clock()
        order = torch.randperm(len(targets)).to(inputs.device)
        total = torch.zeros((), device=inputs.device)
        correct = torch.zeros((), dtype=torch.long, device=inputs.device)
        for rows in order.split(size):  # type: ignore[no-untyped-call]  # torch left it untyped
            batch, wanted = inputs[rows], targets[rows]
            with torch.autocast(inputs.device.type, torch.bfloat16, enabled=job["bfloat16"]):
                outputs = model(batch)
                loss = F.cross_entropy(outputs, wanted)
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]  # as above
            optimizer.step()
            total += loss.detach() * len(rows)
            correct += (outputs.detach().argmax(1) == wanted).sum()
            steps += 1
        float(total), int(correct)
        seconds += clock() - start
    return seconds / steps


@torch.no_grad()
def evaluate(job: dict[str, Any], epochs: int) -> float:
    """Seconds a batch of a loop that tracks mean loss and accuracy."""
    inputs, targets, size = job["inputs"], job["targets"], job["batch_size"]
    clock: Callable[[], float] = getattr(time, job["clock"])
    model = model_of(job).eval()
    start = clock()
    for _ in range(epochs):
        total = torch.zeros((), device=inputs.device)
        correct = torch.zeros((), dtype=torch.long, device=inputs.device)
        for batch, wanted in zip(inputs.split(size), targets.split(size), strict=True):
            outputs = model(batch)
            total += F.cross_entropy(outputs, wanted) * len(wanted)
            correct += (outputs.argmax(1) == wanted).sum()
        float(total), int(correct)
    batches: int = epochs * -(-len(targets) // size)
    return (clock() - start) / batches


def main() -> None:
    """Answer with the seconds of a step or batch of the job in a file."""
    job: dict[str, Any] = torch.load(sys.argv[1], weights_only=True)
    torch.set_num_threads(job["threads"])
    device = torch.device(job["device"])
    job["inputs"], job["targets"] = (job[name].to(device) for name in ("inputs", "targets"))
    run = train if job["optimizer"] else evaluate

    def give(epochs: int) -> float:
        seconds = run(job, epochs)
        if "lightning" in sys.modules or "PYTORCH_NVML_BASED_CUDA_CHECK" in os.environ:
            sys.exit("this side is not by hand: it has imported Lightning")
        return seconds

    answer(give)


if __name__ == "__main__":
    main()
